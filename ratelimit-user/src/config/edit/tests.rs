//! What edits change in a text, and that they change nothing else.

use proptest::prelude::*;

use super::*;
use crate::config;

const COMMENTED: &str = "# ours\r\n[source]   # all of them\r\nlimits = [ # four at most\r\n  \"5000 packets/s\",  # ticket 4711\r\n\
                         \t'100 syns/s' , # and this\r\n]\r\n\r\n# the end";

const WHOLE: &str = r#"
[source]
limits = ["5000/s"]
[[service]]
  name = "web"    # ours
  match = { protocol = "tcp", ports = [80] }
[[service]]
name = "dns"
per_source = ["200/s"] # enough
match = { protocol = "udp", ports = [53] }
total = []
[plan.gold]
network = ["20000/s"]
[plan."two words"]
network = [
  "1/s", # slow
  "1 MB/s", # and this
]
[[user]]
name = "acme" # the big one
plan = "gold"
[[user]]
name = "other"
network = [
  "7/s",
] # theirs
"#;

fn source(text: &str, rates: &[&str]) -> Result<String, EditError> {
    list(text, &LimitList::Source, rates)
}

fn list(text: &str, list: &LimitList, rates: &[&str]) -> Result<String, EditError> {
    set_list(text, list, &rates.iter().map(|rate| (*rate).to_owned()).collect::<Vec<_>>())
}

/// Asserts that the edited text is the whole one with one piece replaced, and still a valid policy.
fn assert_edit(edited: Result<String, EditError>, from: &str, to: &str) {
    assert_eq!(WHOLE.matches(from).count(), 1, "{from}");
    let edited = edited.unwrap();
    assert_eq!(edited, WHOLE.replace(from, to));
    config::parse(&edited, "p.toml").unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn a_limit_is_replaced_and_every_other_byte_stays() {
    let edited = source(COMMENTED, &["5000 packets/s", "7 syns/s burst 9"]).unwrap();
    assert_eq!(edited, COMMENTED.replace("'100 syns/s'", "\"7 syns/s burst 9\""));
    let edited = source(COMMENTED, &["1/s", "100 syns/s burst 100"]).unwrap();
    assert_eq!(edited, COMMENTED.replace("\"5000 packets/s\"", "\"1/s\""));
}

#[test]
fn a_limit_that_is_not_there_comes_behind_the_last_one() {
    let edited = source(COMMENTED, &["5000/s", "100 syns/s", "1 MB/s"]).unwrap();
    assert_eq!(edited, COMMENTED.replace("'100 syns/s'", "'100 syns/s', \"1 MB/s\""));
    let short = "source = { limits = [\"1/s\"] }";
    assert_eq!(source(short, &["1/s", "1 MB/s"]).unwrap(), "source = { limits = [\"1/s\", \"1 MB/s\"] }");
}

#[test]
fn a_limit_that_goes_leaves_the_comments_of_the_others() {
    let edited = source(COMMENTED, &["5000/s"]).unwrap();
    assert_eq!(edited, COMMENTED.replace("\t'100 syns/s' , # and this", " # and this"));
    assert_edit(
        list(WHOLE, &LimitList::Plan("two words".into()), &["1/s"]),
        "  \"1 MB/s\", # and this\n",
        " # and this\n",
    );
    assert_eq!(
        source("source.limits = [\"1/s\", \"2/min\", \"3/day\"]", &["1/s"]).unwrap(),
        "source.limits = [\"1/s\",]"
    );
}

#[test]
fn dotted_keys_and_a_byte_order_mark_are_no_obstacle() {
    let text = "\u{feff}source.limits = [\"1/s\"] # ä\n";
    assert_eq!(source(text, &["2/s"]).unwrap(), text.replace("1/s", "2/s"));
}

#[test]
fn a_list_is_found_by_the_name_of_its_service_plan_or_user_and_made_where_there_is_none() {
    assert_edit(list(WHOLE, &LimitList::PerSource("dns".into()), &["9/s"]), "\"200/s\"", "\"9/s\"");
    assert_edit(list(WHOLE, &LimitList::Total("dns".into()), &["9/s"]), "total = []", "total = [\"9/s\"]");
    assert_edit(list(WHOLE, &LimitList::Plan("gold".into()), &["9/s"]), "\"20000/s\"", "\"9/s\"");
    assert_edit(list(WHOLE, &LimitList::User("other".into()), &["9/s"]), "\"7/s\"", "\"9/s\"");
    let web = "  name = \"web\"    # ours\n";
    assert_edit(
        list(WHOLE, &LimitList::Total("web".into()), &["9/s", "1 MB/s"]),
        web,
        &format!("  total = [\"9/s\", \"1 MB/s\"]\n{web}"),
    );
    let acme = "name = \"acme\" # the big one\n";
    assert_edit(
        list(WHOLE, &LimitList::User("acme".into()), &["9/s"]),
        acme,
        &format!("network = [\"9/s\"]\n{acme}"),
    );
}

#[test]
fn a_user_changes_its_plan_or_gets_one() {
    assert_edit(set_plan(WHOLE, "acme", "two words"), "plan = \"gold\"", "plan = \"two words\"");
    let other = "name = \"other\"\n";
    assert_edit(set_plan(WHOLE, "other", "gold"), other, &format!("plan = \"gold\"\n{other}"));
    let inline = "user = [{ name = \"a\" }]";
    assert_eq!(set_plan(inline, "a", "g\"").unwrap(), "user = [{ plan = \"g\\\"\", name = \"a\" }]");
}

#[test]
fn a_user_loses_limits_of_its_own_and_no_comment() {
    let own = "network = [\n  \"7/s\",\n] # theirs\n";
    assert_edit(remove_list(WHOLE, &LimitList::User("other".into())), own, " # theirs\n");
    assert_eq!(remove_list(WHOLE, &LimitList::User("acme".into())).unwrap(), WHOLE, "it has none");
    let inline = "user = [{ name = \"a\", network = [\"1/s\"], plan = \"g\" }]";
    let expected = "user = [{ name = \"a\", plan = \"g\" }]";
    assert_eq!(remove_list(inline, &LimitList::User("a".into())).unwrap(), expected);
    let lines = "[[user]]\nnetwork = [\"1/s\"]\nname = \"a\"\n";
    assert_eq!(remove_list(lines, &LimitList::User("a".into())).unwrap(), "[[user]]\nname = \"a\"\n");
}

proptest! {
    #[test]
    fn no_text_panics_and_an_edited_policy_has_the_new_limit_and_the_old_others(
        junk in any::<String>(),
        space in "[ \t]{0,3}",
        comment in "[^\\pC]{0,20}",
        index in 0_usize..3,
        amount in 1_u32..1000,
    ) {
        let _refused = source(&junk, &["1/s"]);
        let _refused = set_plan(&junk, "a", "b");
        let text = format!(
            "#{comment}\n[source]{space}#{comment}\nlimits{space}={space}[{space}\"5000/s\",#{comment}\n'10 syns/s'{space},#{comment}\n]\n"
        );
        // One rate for each index, in a meter that no other limit of the list has.
        let rate = [format!("{amount} packets/s"), format!("{amount} syns/s"), format!("{amount} fragments/s")];
        let mut rates = vec!["5000 packets/s", "10 syns/s"];
        match rates.get_mut(index) {
            Some(place) => *place = &rate[index],
            None => rates.push(&rate[index]),
        }
        let edited = source(&text, &rates).unwrap();
        let (before, after) = (config::parse(&text, "p").unwrap().policy, config::parse(&edited, "p").unwrap().policy);
        let (before, after) = (before.source().limits(), after.source().limits());
        prop_assert_eq!(after.len(), before.len().max(index + 1));
        prop_assert_eq!(after[index].rate().amount, u64::from(amount));
        for other in (0..2).filter(|other| *other != index) {
            prop_assert_eq!(&after[other], &before[other]);
        }
        let comment = format!("#{comment}\n");
        prop_assert_eq!(edited.matches(&comment).count(), text.matches(&comment).count());
        prop_assert_eq!(source(&edited, &["5000/s", "10 syns/s"]).unwrap().matches(&comment).count(), text.matches(&comment).count());
    }
}

#[test]
fn what_is_no_policy_is_refused() {
    assert_eq!(source("[source", &["1/s"]), Err(EditError::NotToml));
    for text in ["", "source = 1", "[[source]]\n"] {
        assert_eq!(source(text, &["1/s"]), Err(EditError::NoTable("[source]".into())), "{text}");
    }
    let error = list(WHOLE, &LimitList::User("nobody".into()), &["1/s"]).unwrap_err();
    assert_eq!(error.to_string(), "it has no user \"nobody\"");
}
