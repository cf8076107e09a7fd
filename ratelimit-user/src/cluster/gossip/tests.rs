//! Tests of the calls that one host makes and of how it takes in answers. `tests/tests/cluster/gossip` tests several hosts with a real store.

use serde_json::json;

use super::*;
use crate::cluster::blocks::Layer;
use crate::store::redis::Value;

const SECOND: u64 = 1_000_000_000;
const NET: &str = "203.0.113.0/24";

/// A test host with a list, and prefixes that must not be cut off.
#[derive(Default)]
struct House {
    list: BTreeMap<Prefix, (HostBlock, Layer)>,
    friends: Vec<Prefix>,
}

impl ThisHost for House {
    fn would_cut_off(&self, prefix: &Prefix) -> Option<String> {
        self.friends.iter().find(|friend| prefix.covers(friend)).map(|friend| format!("{friend} is a friend"))
    }

    fn listed(&self, prefix: &Prefix) -> Option<HostBlock> {
        self.list.get(prefix).map(|(host_block, _)| host_block.clone())
    }
}

impl House {
    fn carry_out(&mut self, edits: impl IntoIterator<Item = ListEdit>) {
        for ListEdit { prefix, block } in edits {
            match block {
                Some(block) => self.list.insert(prefix, block),
                None => self.list.remove(&prefix),
            };
        }
    }

    fn on_list(&self) -> Vec<String> {
        self.list.keys().map(ToString::to_string).collect()
    }
}

/// A reply of the store, from which the test makes an answer.
#[derive(Clone)]
struct Reply {
    now_ms: i64,
    identity: &'static str,
    base: i64,
    version: i64,
    begins: bool,
    more: bool,
    standing: &'static str,
    incarnation: i64,
    edit: i64,
    refused: Vec<(i64, &'static str)>,
    /// Changes: prefix, fate, milliseconds left, origin. The last change has the version of the answer.
    changes: Vec<(String, i64, i64, &'static str)>,
    hosts: Vec<(&'static str, i64, String)>,
}

/// Returns the reply of a store without changes.
fn quiet() -> Reply {
    Reply {
        now_ms: 0,
        identity: "s1",
        base: 0,
        version: 0,
        begins: false,
        more: false,
        standing: "current",
        incarnation: 1,
        edit: 0,
        refused: vec![],
        changes: vec![],
        hosts: vec![],
    }
}

fn blocked(prefix: &str, left_ms: i64) -> (String, i64, i64, &'static str) {
    (prefix.to_owned(), 1, left_ms, "b")
}

impl Reply {
    fn value(&self) -> Value {
        let word = |text: &str| Value::BulkString(text.into());
        let first = self.version - self.changes.len() as i64 + 1;
        let changes = (first..).zip(&self.changes).flat_map(|(version, (prefix, fate, left, origin))| {
            let numbers = [version, *fate, *left].map(Value::Int);
            [&[word(prefix)][..], &numbers, &[word("flood"), word(origin)]].concat()
        });
        let refused = self.refused.iter().flat_map(|(sequence, why)| [Value::Int(*sequence), word(why)]);
        let hosts =
            self.hosts.iter().flat_map(|(name, ago, facts)| [word(name), Value::Int(*ago), word(facts)]);
        Value::Array(vec![
            Value::Int(self.now_ms),
            word(self.identity),
            Value::Int(self.base),
            Value::Int(self.version),
            Value::Int(self.begins.into()),
            Value::Int(self.version),
            Value::Int(self.more.into()),
            word(self.standing),
            Value::Int(self.incarnation),
            Value::Int(self.edit),
            Value::Array(refused.collect()),
            Value::Array(changes.collect()),
            Value::Array(hosts.collect()),
        ])
    }
}

fn p(text: &str) -> Prefix {
    text.parse().unwrap()
}

fn host_block(until_s: Option<u64>) -> HostBlock {
    HostBlock { until_ns: until_s.map(|s| s * SECOND), reason: "mine".into() }
}

fn daemon(saved: &Saved) -> Gossip {
    Gossip::new("a", 1, saved, [], 0).unwrap()
}

/// Makes a host that has heard everything from a store without blocks.
fn settled() -> (Gossip, House) {
    let (mut gossip, house) = (daemon(&Saved::default()), House::default());
    gossip.hear(&Reply { begins: true, ..quiet() }.value(), &house, 0).unwrap();
    (gossip, house)
}

/// Gives a reply to the host, and carries out the edits on its list.
fn hear(gossip: &mut Gossip, house: &mut House, reply: &Reply, now_ns: u64) -> GossipUpdate {
    let heard = gossip.hear(&reply.value(), house, now_ns).unwrap();
    house.carry_out(heard.edits.clone());
    heard
}

/// Returns the words of the next call, as text.
fn words(gossip: &mut Gossip, now_ns: u64) -> Vec<String> {
    let call = gossip.call(&Keys::new("rl"), &Facts::default(), true, now_ns);
    call.args.into_iter().map(|arg| String::from_utf8(arg).unwrap()).collect()
}

/// Returns the edits of the next call, seven words each.
fn next_edits(gossip: &mut Gossip, now_ns: u64) -> Vec<Vec<String>> {
    words(gossip, now_ns)[10..].chunks(7).map(<[String]>::to_vec).collect()
}

#[test]
fn a_call_says_who_calls_how_often_what_it_has_heard_and_how_it_is() {
    let (mut gossip, mut house) = (daemon(&Saved::default()).owned_by("machine".into()), House::default());
    let facts = Facts { program: "9.9".into(), leases: 3, ..Facts::default() };
    let call = gossip.call(&Keys::new("rl"), &facts, false, 0);
    let keys: Vec<String> = call.keys.into_iter().map(|key| String::from_utf8(key).unwrap()).collect();
    assert_eq!((keys.len(), keys[0].as_str()), (6, "rl:gossip:{gossip}:state"));
    let head = |gossip: &mut Gossip| words(gossip, 0)[..9].to_vec();
    let new = head(&mut gossip);
    assert_eq!([&new[..7], &new[8..]].concat(), ["a", "1", "2", "", "0", "0", "1", "machine"]);
    // Two blocks come in two portions; this host refuses one of them.
    house.friends.push(p("198.51.100.7"));
    let (first, second) = (blocked(NET, -1), blocked("198.51.100.0/24", 60_000));
    let reply = Reply { begins: true, more: true, version: 1, changes: vec![first], ..quiet() };
    assert!(hear(&mut gossip, &mut house, &reply, 0).again, "there is more");
    assert_eq!(head(&mut gossip)[3..6], ["s1", "1", "1"], "it goes on with the listing");
    let reply = Reply { version: 2, changes: vec![second], ..quiet() };
    let heard = hear(&mut gossip, &mut house, &reply, 0);
    assert!(!heard.again);
    assert_eq!(
        heard.log,
        ["refused to block 198.51.100.0/24, as b wants on all hosts: 198.51.100.7/32 is a friend"]
    );
    let after = head(&mut gossip);
    assert_eq!(after[3..6], ["s1", "2", "0"]);
    let said: serde_json::Value = serde_json::from_str(&after[7]).unwrap();
    assert_eq!([&said["applied"], &said["blocks"], &said["refused"]], [&json!(2), &json!(2), &json!(1)]);
    assert_eq!(house.on_list(), [NET]);
    let known: Vec<_> =
        gossip.blocks(0).map(|(prefix, _, why)| (prefix.to_string(), why.is_some())).collect();
    assert_eq!(known, [("198.51.100.0/24".to_owned(), true), (NET.to_owned(), false)]);
}

#[test]
fn facts_of_the_daemon_are_told_as_they_are() {
    let mut gossip = daemon(&Saved::default());
    let facts = Facts { program: "9.9".into(), leases: 3, round_trip_us: 40, ..Facts::default() };
    let call = gossip.call(&Keys::new("rl"), &facts, false, 0);
    assert_eq!(call.args[6], b"0", "who only calls does not ask for the others");
    let said: Facts = serde_json::from_slice(&call.args[7]).unwrap();
    assert_eq!(said, facts);
}

#[test]
fn an_edit_is_told_with_every_call_until_it_is_answered() {
    let (mut gossip, mut house) = settled();
    let added = gossip.add(p(NET), host_block(Some(60)), false, &house, 10 * SECOND).unwrap();
    house.carry_out(added);
    assert_eq!(house.on_list(), [NET], "here at once");
    gossip.add(p("192.0.2.0/24"), host_block(None), false, &house, 10 * SECOND).unwrap();
    house.carry_out(gossip.remove(p(NET), &house, 11 * SECOND).unwrap());
    let [own, forever, gone] = next_edits(&mut gossip, 20 * SECOND).try_into().unwrap();
    assert_eq!(own, ["1", "add", "0", NET, "40000", "mine", "a"]);
    assert_eq!(forever, ["2", "add", "0", "192.0.2.0/24", "-1", "mine", "a"]);
    assert_eq!(gone, ["3", "remove", "0", NET, "0", "", "a"]);
    assert_eq!(
        next_edits(&mut gossip, 90 * SECOND)[0][4],
        "1",
        "one that has run out still replaces what was there"
    );
    assert_eq!((gossip.waiting(), gossip.answered(), gossip.numbers().edit), (3, 0, 3));
    // The store has carried out two edits; the third is told again.
    let heard = hear(&mut gossip, &mut house, &Reply { edit: 2, ..quiet() }, 20 * SECOND);
    assert!(heard.again, "one more is to be said");
    assert_eq!((gossip.waiting(), gossip.answered()), (1, 2));
    assert_eq!(next_edits(&mut gossip, 0)[0][0], "3");
    assert!(!hear(&mut gossip, &mut house, &Reply { edit: 3, ..quiet() }, 20 * SECOND).again);
    assert_eq!((gossip.waiting(), gossip.answered()), (0, 3));
    let error = gossip.remove(p(NET), &house, 21 * SECOND).unwrap_err();
    assert!(error.contains("is not blocked on all hosts"), "{error}");
}

#[test]
fn while_there_is_more_to_hear_no_edit_counts_as_answered() {
    let (mut gossip, mut house) = settled();
    gossip.add(p(NET), host_block(None), false, &house, 0).unwrap();
    hear(&mut gossip, &mut house, &Reply { edit: 1, more: true, ..quiet() }, 0);
    assert_eq!(gossip.waiting(), 1);
    hear(&mut gossip, &mut house, &Reply { edit: 1, ..quiet() }, 0);
    assert_eq!(gossip.waiting(), 0);
}

#[test]
fn a_store_that_is_away_for_long_fills_no_memory_and_gets_edits_in_portions() {
    let (mut gossip, house) = settled();
    let prefix = |n: u32| Prefix::masked(std::net::Ipv4Addr::from(0x0a00_0000 + n).into(), 32);
    for n in 0..20_000 {
        gossip.add(prefix(n), host_block(None), false, &house, 0).unwrap();
    }
    let error = gossip.add(prefix(20_000), host_block(None), false, &house, 0).unwrap_err();
    assert!(error.starts_with("20000 changes of blocks wait for the store"), "{error}");
    assert_eq!(next_edits(&mut gossip, 0).len(), 200);
}

#[test]
fn what_would_cut_somebody_off_is_added_by_force_alone_and_what_is_absurd_never() {
    let (mut gossip, mut house) = settled();
    house.friends.push(p("203.0.113.7"));
    let error = gossip.add(p(NET), host_block(None), false, &house, 0).unwrap_err();
    assert!(error.contains("is a friend"), "{error}");
    assert_eq!(gossip.waiting(), 0);
    house.carry_out(gossip.add(p(NET), host_block(None), true, &house, 0).unwrap());
    assert!(gossip.is_forced(&p(NET)) && !gossip.is_forced(&p("192.0.2.0/24")));
    assert_eq!(house.on_list(), [NET]);
    let loud = HostBlock { until_ns: None, reason: "a\u{7}b".into() };
    for (prefix, host_block) in [("0.0.0.0/7", host_block(None)), ("192.0.2.0/24", loud)] {
        assert!(gossip.add(p(prefix), host_block, true, &house, 0).is_err(), "{prefix}");
    }
}

#[test]
fn news_of_others_are_carried_out_and_told_to_the_operator_but_not_what_was_there_before() {
    let (mut gossip, mut house) = (daemon(&Saved::default()), House::default());
    let all = Reply { begins: true, version: 1, changes: vec![blocked(NET, -1)], ..quiet() };
    let heard = hear(&mut gossip, &mut house, &all, 0);
    assert_eq!((heard.log.len(), house.on_list()), (0, vec![NET.to_owned()]));
    let news = vec![
        blocked("192.0.2.1/32", -1),
        blocked("192.0.2.2/32", 1_500),
        (NET.to_owned(), 0, 0, "b"),
        ("192.0.2.3/32".to_owned(), 2, 0, "b"),
        ("192.0.2.300/32".to_owned(), 1, -1, "b"),
    ];
    let heard = hear(&mut gossip, &mut house, &Reply { version: 6, changes: news, ..quiet() }, 0);
    assert_eq!(
        heard.log[..4],
        [
            "b blocks 192.0.2.1/32 on all hosts until removed: flood",
            "b blocks 192.0.2.2/32 on all hosts for 2 s: flood",
            "b removed the block of 203.0.113.0/24 on all hosts",
            "the block of 192.0.2.3/32 on all hosts by b has run out",
        ]
    );
    assert!(
        heard.log[4].starts_with("ignored a block for all hosts, said to be of \"b\""),
        "{:?}",
        heard.log
    );
    assert_eq!(house.on_list(), ["192.0.2.1/32", "192.0.2.2/32"]);
    assert_eq!(house.listed(&p("192.0.2.2")).unwrap().until_ns, Some(1_500_000_000));
    // An edit of this host itself is not logged.
    house.carry_out(gossip.add(p(NET), host_block(None), false, &house, 0).unwrap());
    let own = (NET.to_owned(), 1, -1, "a");
    let heard =
        hear(&mut gossip, &mut house, &Reply { version: 7, changes: vec![own], edit: 1, ..quiet() }, 0);
    assert_eq!(heard.log, [""; 0]);
}

#[test]
fn an_answer_with_thousands_of_news_makes_twenty_lines() {
    for (news, last) in
        [(20, None), (21, Some("and 1 more of that kind")), (500, Some("and 480 more of that kind"))]
    {
        let (mut gossip, mut house) = settled();
        let changes: Vec<_> =
            (0..news).map(|n| blocked(&format!("10.0.{}.{}/32", n / 256, n % 256), -1)).collect();
        let heard = hear(&mut gossip, &mut house, &Reply { version: news, changes, ..quiet() }, 0);
        assert_eq!(heard.log.len(), 20 + last.iter().len());
        assert_eq!(heard.log.get(20).map(String::as_str), last);
        assert_eq!(house.list.len(), news as usize, "all are carried out");
    }
}

#[test]
fn a_daemon_goes_on_above_all_numbers_that_those_before_it_can_have_used() {
    let begun = |incarnation, daemons| {
        let numbers = Numbers { incarnation, daemons, edit: 4, version: 9, identity: Some("s1".into()) };
        let saved = Saved { numbers, ..Saved::default() };
        let mut gossip = Gossip::new("a", 77, &saved, [], 0).unwrap();
        let head = words(&mut gossip, 0);
        let number = |at: usize| head[at].parse::<u64>().unwrap();
        assert_eq!((head[3].as_str(), head[4].as_str()), ("", "9"), "it asks for everything");
        (number(1), number(2), gossip.numbers().daemons, gossip.numbers().edit)
    };
    assert_eq!(begun(0, 5), (77, 1, 1, 4), "the first of an incarnation");
    assert_eq!(begun(40, 1), (40, (1 << 34) + 1, 2, 4));
    assert_eq!(begun(40, 3), (40, 3 * (1 << 34) + 1, 4, 4));
    assert_eq!(begun(40, (1 << 18) - 1), (40, ((1 << 18) - 1) * (1 << 34) + 1, 1 << 18, 4));
    assert_eq!(begun(40, 1 << 18), (41, 1, 1, 4), "the next incarnation");
    let clock_of_the_far_future = Gossip::new("a", (1 << 52) + 3, &Saved::default(), [], 0).unwrap();
    assert_eq!(clock_of_the_far_future.numbers().incarnation, 3, "the store counts exactly to twice that");
    assert!(Gossip::new("no name", 1, &Saved::default(), [], 0).is_err());
}

#[test]
fn one_that_is_not_heard_for_a_daemon_that_is_gone_tries_a_higher_number_at_once() {
    for standing in ["superseded", "late"] {
        let saved = Saved {
            numbers: Numbers { incarnation: 5, daemons: 2, ..Numbers::default() },
            ..Saved::default()
        };
        let (mut gossip, mut house) = (daemon(&saved), House::default());
        let reply = Reply { standing, incarnation: 90, begins: true, ..quiet() };
        let heard = hear(&mut gossip, &mut house, &reply, 0);
        assert!(heard.again && heard.log.is_empty(), "{heard:?}");
        assert_eq!((gossip.numbers().incarnation, gossip.numbers().daemons), (91, 1));
        assert_eq!(gossip.unheard(), None);
        // Once the store has heard the daemon, a later one supersedes it.
        hear(&mut gossip, &mut house, &Reply { incarnation: 91, ..quiet() }, 0);
        let heard = hear(&mut gossip, &mut house, &Reply { standing, incarnation: 92, ..quiet() }, 0);
        assert!(!heard.again);
        assert!(heard.log[0].contains("another host calls the store as \"a\""), "{:?}", heard.log);
        assert_eq!(gossip.numbers().incarnation, 91);
        let error = gossip.add(p(NET), host_block(None), false, &house, 0).unwrap_err();
        assert!(error.contains("no other host would hear of it"), "{error}");
        let heard = hear(&mut gossip, &mut house, &quiet(), 0);
        assert_eq!(heard.log, ["the store hears this host again"]);
        assert!(gossip.add(p(NET), host_block(None), false, &house, 0).is_ok());
    }
}

#[test]
fn whoever_the_store_has_no_ear_for_still_hears_everything_and_keeps_what_it_has_to_say() {
    for (standing, why) in [("taken", "another host calls"), ("crowded", "as many hosts as it can")] {
        let (mut gossip, mut house) = settled();
        gossip.add(p("192.0.2.0/24"), host_block(None), false, &house, 0).unwrap();
        let changes = vec![blocked(NET, -1)];
        let reply = Reply { standing, edit: 1, version: 1, changes, refused: vec![(1, "no")], ..quiet() };
        let heard = hear(&mut gossip, &mut house, &reply, 0);
        assert!(!heard.again && heard.log[0].contains(why), "{heard:?}");
        assert_eq!(heard.log.len(), 2, "{heard:?}");
        assert!(gossip.unheard().unwrap().contains(why));
        assert!(house.on_list().contains(&NET.to_owned()));
        assert_eq!(gossip.waiting(), 1, "edits of somebody else under this name were answered");
        let again = hear(&mut gossip, &mut house, &Reply { standing, version: 1, ..quiet() }, 0);
        assert_eq!(again.log, [""; 0], "it is said once");
    }
}

#[test]
fn a_refusal_of_the_store_is_told_with_its_reason_in_plain_text() {
    let (mut gossip, mut house) = settled();
    gossip.add(p(NET), host_block(None), false, &house, 0).unwrap();
    let reply = Reply { edit: 1, refused: vec![(1, "no \u{1b}[31mroom"), (9, "whose?")], ..quiet() };
    let heard = hear(&mut gossip, &mut house, &reply, 0);
    assert_eq!(heard.log, ["the store refused to block 203.0.113.0/24 on all hosts: no ?[31mroom"]);
    assert_eq!(gossip.waiting(), 0);
}

#[test]
fn what_another_store_has_lost_is_given_back_own_edits_at_once_and_those_of_others_later() {
    let (mut gossip, mut house) = settled();
    let changes = vec![blocked(NET, -1), ("192.0.2.0/24".to_owned(), 1, -1, "a")];
    hear(&mut gossip, &mut house, &Reply { version: 2, changes, ..quiet() }, 0);
    // An emptied store has another identity and no records.
    let empty = Reply { identity: "s2", begins: true, ..quiet() };
    let heard = hear(&mut gossip, &mut house, &empty, SECOND);
    assert_eq!(
        heard.log,
        [
            "the store is another one, or has been emptied or restarted; what it knew before its change 0 is compared"
        ]
    );
    assert!(heard.again, "something is to be given back");
    assert_eq!(house.on_list().len(), 2, "nothing is let go");
    assert_eq!(next_edits(&mut gossip, SECOND), [["1", "add", "1", "192.0.2.0/24", "-1", "flood", "a"]]);
    hear(&mut gossip, &mut house, &Reply { identity: "s2", edit: 1, ..quiet() }, 30 * SECOND);
    assert_eq!(gossip.waiting(), 0, "others have half a minute");
    hear(&mut gossip, &mut house, &Reply { identity: "s2", edit: 1, ..quiet() }, 31 * SECOND);
    assert_eq!(next_edits(&mut gossip, SECOND), [["2", "add", "1", NET, "-1", "flood", "b"]]);
}

#[test]
fn a_store_whose_numbers_went_back_is_another_one_and_the_same_one_is_not() {
    for (identity, version, is_other) in [("s1", 2, true), ("s2", 3, true), ("s1", 3, false)] {
        let (mut gossip, mut house) = settled();
        let changes = vec![blocked("10.1.0.0/16", -1), blocked("10.2.0.0/16", -1), blocked(NET, -1)];
        hear(&mut gossip, &mut house, &Reply { version: 3, changes, ..quiet() }, 0);
        let reply = Reply { identity, version, base: 0, begins: true, ..quiet() };
        let heard = hear(&mut gossip, &mut house, &reply, 0);
        assert_eq!(!heard.log.is_empty(), is_other, "{identity} {version}");
        // A store whose identity has not changed has all records, so a record that it does not tell was removed.
        assert_eq!(house.list.is_empty(), !is_other, "{identity} {version}");
    }
}

#[test]
fn blocks_whose_store_is_not_known_any_more_are_told_again() {
    let list = [(p(NET), BlockRecord { host_block: host_block(None), origin: "a".into() })];
    let mut house = House::default();
    house.list.insert(p(NET), (host_block(None), Layer::Cluster));
    let mut gossip = Gossip::new("a", 1, &Saved::default(), list.clone(), 0).unwrap();
    let heard = hear(&mut gossip, &mut house, &Reply { begins: true, ..quiet() }, 0);
    assert!(heard.log[0].starts_with("what was known of the store is lost"), "{:?}", heard.log);
    assert_eq!(next_edits(&mut gossip, 0), [["1", "add", "1", NET, "-1", "mine", "a"]]);
    // A daemon that knows the store's identity accepts that the record is gone.
    let numbers = Numbers { identity: Some("s1".into()), version: 1, ..Numbers::default() };
    let saved = Saved { numbers, ..Saved::default() };
    let mut gossip = Gossip::new("a", 1, &saved, list, 0).unwrap();
    assert_eq!(gossip.shown().map(ToString::to_string).collect::<Vec<_>>(), [NET]);
    let heard = hear(&mut gossip, &mut house, &Reply { begins: true, version: 1, ..quiet() }, 0);
    assert_eq!((heard.log.len(), house.list.len(), gossip.waiting()), (0, 0, 0));
    assert_eq!(gossip.shown().count(), 0);
}

#[test]
fn what_a_daemon_leaves_behind_the_next_one_goes_on_with() {
    let (mut gossip, mut house) = settled();
    house.friends.push(p("203.0.113.7"));
    house.carry_out(gossip.add(p(NET), host_block(None), true, &house, 0).unwrap());
    house.carry_out([gossip.block_here(p("192.0.2.0/24"), host_block(Some(50)), 0)]);
    let changes = vec![blocked("192.0.2.0/24", 90_000)];
    hear(&mut gossip, &mut house, &Reply { version: 1, changes, ..quiet() }, 0);
    let wide = p("192.0.2.0/24");
    assert_eq!(gossip.hidden(&wide), Some(&host_block(Some(50))));
    let saved = gossip.saved();
    assert_eq!(saved.forced, [NET]);
    assert_eq!(saved.hidden, [("192.0.2.0/24".to_owned(), Some(50 * SECOND), "mine".to_owned())]);
    assert_eq!((saved.waiting.len(), saved.numbers.version, saved.numbers.edit), (1, 1, 1));
    let shown: Vec<_> =
        gossip.shown().map(|prefix| (*prefix, gossip.block(prefix, 0).unwrap().clone())).collect();
    assert_eq!(shown.len(), 2);
    let mut next = Gossip::new("a", 2, &saved, shown, 0).unwrap();
    assert_eq!(
        (next.waiting(), next.is_forced(&p(NET)), next.hidden(&wide)),
        (1, true, Some(&host_block(Some(50))))
    );
    assert_eq!(next_edits(&mut next, 0), [["1", "add", "0", NET, "-1", "mine", "a"]]);
    assert_eq!(next.waiting_after(0).count(), 1);
    assert_eq!(next.waiting_after(1).count(), 0);
    // The block of this host alone is removed, and the cluster's stays.
    let edit = next.unblock_here(wide, &house, 0).unwrap();
    assert_eq!(edit.block.unwrap().1, Layer::Cluster);
    assert_eq!(next.unblock_here(wide, &house, 0), None);
}

#[test]
fn edits_are_resumed_in_their_order_and_each_once() {
    let waiting =
        |sequence: u64| WaitingEdit { sequence, prefix: NET.to_owned(), block: None, restores: false };
    let odd = WaitingEdit { prefix: "no prefix".into(), ..waiting(9) };
    for (edit, last) in [(3, 7), (12, 12)] {
        let left = vec![waiting(7), odd.clone(), waiting(5), waiting(7)];
        let saved =
            Saved { waiting: left, numbers: Numbers { edit, ..Numbers::default() }, ..Saved::default() };
        let mut gossip = daemon(&saved);
        let sequences: Vec<String> =
            next_edits(&mut gossip, 0).into_iter().map(|words| words[0].clone()).collect();
        assert_eq!(sequences, ["5", "7"]);
        assert_eq!((gossip.answered(), gossip.numbers().edit), (4, last));
        assert_eq!(gossip.waiting_after(5).map(|left| left.sequence).collect::<Vec<_>>(), [7]);
        let (mut house, reply) = (House::default(), Reply { edit: 5, begins: true, ..quiet() });
        hear(&mut gossip, &mut house, &reply, 0);
        assert_eq!(gossip.waiting_after(0).map(|left| left.sequence).collect::<Vec<_>>(), [7]);
        hear(&mut gossip, &mut house, &Reply { edit: 7, ..quiet() }, 0);
        assert_eq!(gossip.answered(), last);
    }
}

#[test]
fn what_was_refused_is_judged_again_when_somebody_has_left() {
    let (mut gossip, mut house) = settled();
    house.friends.push(p("203.0.113.7"));
    hear(&mut gossip, &mut house, &Reply { version: 1, changes: vec![blocked(NET, -1)], ..quiet() }, 0);
    assert_eq!(gossip.judge_again(&house, 0), GossipUpdate::default(), "as it was");
    house.friends.clear();
    let heard = gossip.judge_again(&house, 0);
    assert_eq!((heard.edits.len(), heard.again), (1, false));
    assert_eq!(heard.log, ["203.0.113.0/24 is blocked now, as b wanted on all hosts"]);
}

#[test]
fn what_has_run_out_is_forgotten_ten_seconds_after_the_last_look() {
    let (mut gossip, mut house) = settled();
    hear(&mut gossip, &mut house, &Reply { version: 1, changes: vec![blocked(NET, 1_000)], ..quiet() }, 0);
    let known = |gossip: &mut Gossip| {
        let said: serde_json::Value = serde_json::from_str(&words(gossip, 0)[7]).unwrap();
        said["blocks"].as_u64().unwrap()
    };
    let almost = 10 * SECOND - 1;
    hear(&mut gossip, &mut house, &Reply { version: 1, now_ms: 9_999, ..quiet() }, almost);
    assert_eq!(known(&mut gossip), 1);
    assert_eq!(gossip.block(&p(NET), almost), None, "it does not hold");
    hear(&mut gossip, &mut house, &Reply { version: 1, now_ms: 10_000, ..quiet() }, 10 * SECOND);
    assert_eq!(known(&mut gossip), 0);
}

#[test]
fn hosts_are_those_of_the_last_answer_that_had_any() {
    let (mut gossip, mut house) = settled();
    let hosts = vec![
        ("a", 0, r#"{"applied":3}"#.to_owned()),
        ("no name", 0, String::new()),
        ("b", 9_000, String::new()),
    ];
    hear(&mut gossip, &mut house, &Reply { version: 3, hosts, ..quiet() }, 0);
    let seen = |gossip: &Gossip| -> Vec<(String, u64)> {
        gossip.members().iter().map(|member| (member.host.clone(), member.behind)).collect()
    };
    let both = [("a".to_owned(), 0), ("b".to_owned(), 3)];
    assert_eq!(seen(&gossip), both);
    hear(&mut gossip, &mut house, &Reply { version: 3, ..quiet() }, 0);
    assert_eq!(seen(&gossip), both, "nobody was asked for");
}

#[test]
fn a_clock_of_the_store_that_was_set_is_said_and_told() {
    let (mut gossip, mut house) = settled();
    let heard = hear(&mut gossip, &mut house, &Reply { now_ms: 9_000, ..quiet() }, 2 * SECOND);
    assert_eq!(heard.step_ms, 7_000);
    assert!(heard.log[0].contains("went ahead of this host's by 7.0 s"), "{:?}", heard.log);
    let heard = hear(&mut gossip, &mut house, &Reply { now_ms: 4_000, ..quiet() }, 2 * SECOND);
    assert_eq!(heard.step_ms, -5_000);
    assert!(heard.log[0].contains("went back by 5.0 s"), "{:?}", heard.log);
}

#[test]
fn an_answer_that_makes_no_sense_changes_nothing() {
    let (mut gossip, house) = settled();
    gossip.add(p(NET), host_block(None), false, &house, 0).unwrap();
    let before = gossip.saved();
    assert!(gossip.hear(&Value::Nil, &house, 0).is_err());
    assert_eq!(gossip.saved(), before);
}
