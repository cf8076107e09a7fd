//! Where an answer in the protocol of Redis ends.

use anyhow::{Result, bail};

/// Bytes of the first answer, if all of it is there. An answer that is an error is one here too.
pub(super) fn length(received: &[u8]) -> Result<Option<usize>> {
    let Some(end) = received.windows(2).position(|two| two == b"\r\n") else { return Ok(None) };
    let (line, after) = (&received[1..end], end + 2);
    match received[0] {
        b'+' | b':' => Ok(Some(after)),
        b'-' => bail!("the server answered {}", String::from_utf8_lossy(line)),
        // No bytes have no end either.
        b'$' if line == b"-1" => Ok(Some(after)),
        b'$' => {
            let whole = after + number(line)? + 2;
            Ok((received.len() >= whole).then_some(whole))
        }
        b'*' => {
            let mut whole = after;
            for _ in 0..number(line)? {
                let Some(part) = length(&received[whole..])? else { return Ok(None) };
                whole += part;
            }
            Ok(Some(whole))
        }
        other => bail!("the server answered with {:?}, which begins no answer", char::from(other)),
    }
}

fn number(line: &[u8]) -> Result<usize> {
    let parsed = std::str::from_utf8(line).ok().and_then(|text| text.parse().ok());
    parsed.ok_or_else(|| anyhow::anyhow!("{:?} is no length", String::from_utf8_lossy(line)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_complete_with_its_last_byte_and_an_error_is_told_of() {
        for answer in [&b":12\r\n"[..], b"$-1\r\n", b"*3\r\n:0\r\n$1\r\nx\r\n:-1\r\n"] {
            for end in 0..answer.len() {
                assert_eq!(length(&answer[..end]).unwrap(), None, "{end} bytes of {answer:?}");
            }
            assert_eq!(length(&[answer, b"+more"].concat()).unwrap(), Some(answer.len()), "{answer:?}");
        }
        let error = length(b"*2\r\n:1\r\n-ERR no such command\r\n").unwrap_err().to_string();
        assert_eq!(error, "the server answered ERR no such command");
    }
}
