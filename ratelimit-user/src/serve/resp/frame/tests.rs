use proptest::prelude::*;

use super::*;

type Words = Vec<Vec<u8>>;

fn read(input: &[u8]) -> Result<Option<(Words, usize)>, FrameFault> {
    let mut arguments = Arguments::default();
    let length = parse(input, &mut arguments)?;
    Ok(length.map(|length| (arguments.iter().map(|argument| argument.to_vec()).collect(), length)))
}

fn words(input: &str) -> Vec<String> {
    let (words, length) = read(input.as_bytes()).unwrap().unwrap();
    assert_eq!(length, input.len());
    words.into_iter().map(|word| String::from_utf8(word).unwrap()).collect()
}

/// A request as clients send it.
fn packed(words: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend(format!("${}\r\n", word.len()).bytes());
        bytes.extend(word);
        bytes.extend(b"\r\n");
    }
    bytes
}

/// Every request of a stream that comes in pieces, and whether it ended in a fault.
fn all<'p>(pieces: impl IntoIterator<Item = &'p [u8]>) -> (Vec<Words>, bool) {
    let mut kept = Vec::new();
    let mut requests = Vec::new();
    for piece in pieces {
        kept.extend_from_slice(piece);
        loop {
            match read(&kept) {
                Ok(None) => break,
                Ok(Some((words, length))) => {
                    assert!(length > 0 && length <= kept.len());
                    kept.drain(..length);
                    requests.push(words);
                }
                Err(_) => return (requests, true),
            }
        }
        assert!(kept.len() < MAX_FRAME, "an unfinished request is never longer than a request may be");
    }
    (requests, false)
}

#[test]
fn arrays_and_lines_are_requests() {
    let cases: [(&str, &[&str]); 12] = [
        ("*1\r\n$4\r\nPING\r\n", &["PING"]),
        ("*2\r\n$4\r\nPING\r\n$2\r\nhi\r\n", &["PING", "hi"]),
        ("*2\r\n$0\r\n\r\n$2\r\n\r\n\r\n", &["", "\r\n"]),
        ("*0\r\n", &[]),
        ("*-1\r\n", &[]),
        ("PING\r\n", &["PING"]),
        ("PING\n", &["PING"]),
        ("  check  ann\tsearch \r\n", &["check", "ann", "search"]),
        ("\r\n", &[]),
        ("ECHO \"a b\" 'c \"d'\r\n", &["ECHO", "a b", "c \"d"]),
        ("ECHO \"\"\r\n", &["ECHO", ""]),
        ("ECHO a\"b\r\n", &["ECHO", "a\"b"]),
    ];
    for (input, expected) in cases {
        assert_eq!(words(input), expected, "{input:?}");
    }
}

#[test]
fn nonsense_has_a_name() {
    let long = format!("*1\r\n${}\r\n", MAX_FRAME + 1);
    let two = format!("*2\r\n$60000\r\n{}\r\n$60000\r\n", "x".repeat(60_000));
    let line = "x".repeat(MAX_FRAME);
    let cases = [
        ("*x\r\n", FrameFault::Count),
        ("*\r\n", FrameFault::Count),
        ("*65\r\n", FrameFault::Count),
        ("*1000000000\r\n", FrameFault::Count),
        ("*99999999999999999999\r\n", FrameFault::Count),
        ("*1\rx", FrameFault::Count),
        ("*1\r\n+OK\r\n", FrameFault::NoString(b'+')),
        ("*1\r\n\n", FrameFault::NoString(b'\n')),
        ("*1\r\n$-1\r\n", FrameFault::Length),
        ("*1\r\n$4294967296\r\n", FrameFault::Length),
        ("*1\r\n$4x", FrameFault::Length),
        (&long, FrameFault::Length),
        (&two, FrameFault::TooLong),
        ("*1\r\n$4\r\nPINGPING\r\n", FrameFault::NoEnd),
        (&line, FrameFault::LongLine),
        ("ECHO \"a\r\n", FrameFault::Quotes),
        ("ECHO \"a\"b\r\n", FrameFault::Quotes),
        ("ECHO \"a\\n\"\r\n", FrameFault::Escape),
    ];
    for (input, fault) in cases {
        assert_eq!(read(input.as_bytes()), Err(fault), "{input:.40}");
    }
    assert_eq!(FrameFault::NoString(b'\n').to_string(), "expected '$', got '\\n'");
}

#[test]
fn a_request_may_be_as_long_as_the_limit_and_no_longer() {
    // `*1`, `$65522` and three line ends take 14 bytes.
    let fits = packed(&[vec![b'x'; MAX_FRAME - 14]]);
    assert_eq!(fits.len(), MAX_FRAME);
    assert!(matches!(read(&fits), Ok(Some((_, MAX_FRAME)))));
    assert_eq!(read(&packed(&[vec![b'x'; MAX_FRAME - 13]])), Err(FrameFault::TooLong));
    let most = vec![b"x".to_vec(); MAX_ARGUMENTS];
    assert_eq!(read(&packed(&most)).unwrap().unwrap().0, most);
}

#[test]
fn every_beginning_of_a_request_waits_for_the_rest() {
    let whole = packed(&[b"CL.THROTTLE".to_vec(), b"k\r\n".to_vec(), b"15".to_vec()]);
    for end in 0..whole.len() {
        assert_eq!(read(&whole[..end]), Ok(None), "{end}");
    }
}

/// Requests, blank lines and garbage.
fn stream() -> impl Strategy<Value = Vec<u8>> {
    let word = prop::collection::vec(any::<u8>(), 0..40);
    let array = prop::collection::vec(word, 0..7).prop_map(|words| packed(&words));
    let line = "[a-z \"']{0,20}\r?\n".prop_map(String::into_bytes);
    let odd = prop::collection::vec(prop::sample::select(&b"*$\r\n0123-+:abc\"'\\ "[..]), 0..12);
    let piece = prop_oneof![6 => array, 3 => line, 1 => odd];
    prop::collection::vec(piece, 0..8).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn any_split_of_the_input_gives_the_same_requests(
        bytes in stream(),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
    ) {
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
        cuts.extend([0, bytes.len()]);
        cuts.sort_unstable();
        let pieces = cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]);
        let whole = all([bytes.as_slice()]);
        prop_assert_eq!(&all(pieces), &whole);
        prop_assert_eq!(&all(bytes.chunks(1)), &whole);
    }

    #[test]
    fn what_is_packed_is_read_again(words in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..50), 1..9)) {
        let bytes = packed(&words);
        let length = bytes.len();
        prop_assert_eq!(read(&bytes), Ok(Some((words, length))));
    }

    #[test]
    fn garbage_is_read_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _either = all([bytes.as_slice()]);
        let mut array = b"*3\r\n$".to_vec();
        array.extend(&bytes);
        let _either = all([array.as_slice()]);
    }
}
