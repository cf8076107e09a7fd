use super::*;
use crate::policy::{NotifyWay, Occasion};

const SOURCE: &str = "[source]\nlimits = [\"5000 packets/s\"]\n";

fn problems(text: &str) -> Vec<String> {
    match parse(&format!("{SOURCE}{text}"), "p") {
        Ok(loaded) => panic!("accepted: {:?}", loaded.policy.notifiers()),
        Err(error) => error.to_string().lines().map(str::to_owned).collect(),
    }
}

#[test]
fn notifiers_and_thresholds_of_attacks_are_read() {
    let text = "[attacks]\nbegin = \"500 packets/s\"\nend_after = \"10s\"\n[[notify]]\nwebhook = \"https://a.example/x\"\nsecret_file = \"/etc/s\"\n\
                [[notify]]\nname = \"pager\"\ncommand = [\"/bin/page\", \"now\"]\non = [\"attack_end\", \"attack_begin\", \"attack_begin\"]\n";
    let policy = parse(&format!("{SOURCE}{text}"), "p").unwrap().policy;
    assert_eq!((policy.attacks().begin(), policy.attacks().end_after_ms()), (500, 10_000));
    let [web, pager] = policy.notifiers() else { panic!("{:?}", policy.notifiers()) };
    assert_eq!((web.name.as_str(), web.on.as_slice()), ("1", &Occasion::USUAL[..]));
    assert!(
        matches!(&web.way, NotifyWay::Webhook { url, secret_file: Some(_), .. } if url.host == "a.example")
    );
    assert_eq!((pager.name.as_str(), pager.on.as_slice()), ("pager", &[Occasion::Begin, Occasion::End][..]));
}

#[test]
fn what_is_wrong_with_a_notifier_is_said_with_its_line_and_without_secrets() {
    for (text, line, says) in [
        ("[[notify]]\nwebhook = \"hooks/secret\"", 4, "webhook is no address"),
        ("[[notify]]\nwebhook = \"https://u:secret@a/\"", 4, "secret_file"),
        ("[[notify]]\nname = \"x\"", 3, "neither a webhook nor a command"),
        ("[[notify]]\nwebhook = \"https://a/\"\ncommand = [\"/bin/x\"]", 5, "not both"),
        ("[[notify]]\ncommand = [\"page\"]", 4, "no absolute path"),
        ("[[notify]]\ncommand = []", 4, "command is empty"),
        ("[[notify]]\ncommand = [\"/bin/x\"]\nsecret_file = \"/s\"", 5, "for a webhook"),
        ("[[notify]]\nwebhook = \"http://127.0.0.1/\"\nca_file = \"/s\"", 5, "for https"),
        (
            "[[notify]]\nwebhook = \"https://a/\"\non = [\"attack\"]",
            5,
            "use attack_begin, attack_update, attack_change, attack_end",
        ),
        ("[[notify]]\nwebhook = \"https://a/\"\non = []", 5, "on is empty"),
        ("[[notify]]\nwebhok = \"https://a/\"", 4, "did you mean \"webhook\""),
        ("[attacks]\nbegin = \"10\"", 4, "use one such as \"1000 packets/s\""),
        ("[attacks]\nunusual = \"10 Mbit/s\"", 4, "use one such as \"10000 packets/s\""),
        ("[attacks]\nend_after = \"0s\"", 4, "use one such as \"30s\""),
    ] {
        let found = problems(text);
        let wanted = |problem: &String| problem.starts_with(&format!("p:{line}:")) && problem.contains(says);
        assert!(found.iter().any(wanted), "{text}: {found:?}");
        assert!(
            !found.iter().any(|problem| problem.contains("hooks/secret") || problem.contains(":secret")),
            "{found:?}"
        );
    }
    let twice =
        "[[notify]]\nname = \"a\"\ncommand = [\"/x\"]\n[[notify]]\nname = \"a\"\ncommand = [\"/x\"]\n";
    assert!(problems(twice)[0].contains("there twice"));
    let plain = parse(&format!("{SOURCE}[[notify]]\nwebhook = \"http://a.example/s3cret\"\n"), "p").unwrap();
    let warning = plain.warnings[0].to_string();
    assert!(warning.contains("not encrypted") && !warning.contains("s3cret"), "{warning}");
}
