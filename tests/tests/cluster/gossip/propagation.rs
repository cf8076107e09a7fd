//! Blocks, removals and members reach every host.

use ratelimit_tests::redis::{Options, Redis, RedisCluster};
use ratelimit_user::{
    cluster::{
        blocks::{HostBlock, Layer},
        gossip::Saved,
        members::State,
    },
    store::redis::{Call, RedisLink, slot},
};

use super::{DAY_MS, Host, SECOND, age, block_on, key, open, p, size};

const NET: &str = "203.0.113.0/24";

async fn three_hosts_converge(url: &str) {
    let mut link = open(url).await;
    let [mut a, mut b, mut c] = ["a", "b", "c"].map(Host::new);
    a.add(NET, Some(600), "flood");
    assert_eq!(a.list(), [(NET.to_owned(), "flood", Layer::Cluster)], "here at once");
    // The host that blocks calls once, and each host that hears of the block calls once.
    for host in [&mut a, &mut b, &mut c] {
        assert_eq!(host.talk(&mut link).await, 1);
    }
    for host in [&a, &b, &c] {
        assert_eq!(host.list(), [(NET.to_owned(), "flood", Layer::Cluster)]);
        assert_eq!(host.seconds_left(NET), Some(600));
    }
    let now_ns = b.now_ns();
    assert_eq!(b.gossip.block(&p(NET), now_ns).unwrap().origin, "a");
    // Anybody may remove it, and conflicting edits end the same: the last one that came to the store.
    b.remove(NET).unwrap();
    c.add(NET, None, "again");
    assert_eq!(b.list(), []);
    for host in [&mut c, &mut b, &mut a] {
        host.talk(&mut link).await;
    }
    c.talk(&mut link).await;
    assert_eq!([a.list(), b.list(), c.list()], [vec![], vec![], vec![]]);
    assert_eq!(b.remove(NET).unwrap_err(), "203.0.113.0/24 is not blocked on all hosts; nothing was changed");
    assert_eq!(
        a.log,
        ["b removed the block of 203.0.113.0/24 on all hosts"],
        "c's edit was over before a heard of it"
    );
}

#[test]
fn three_hosts_end_with_the_same_blocks_each_within_one_call() {
    let server = Redis::single(Options::default());
    block_on(three_hosts_converge(&server.url()));
}

#[test]
fn a_redis_cluster_has_all_of_it_in_one_slot() {
    let cluster = RedisCluster::new();
    block_on(three_hosts_converge(&cluster.url()));
    let master = &cluster.nodes[cluster.master_of(slot(key("state").as_bytes())).unwrap()];
    assert_eq!(size(master, "HLEN", "hosts"), 3);
}

#[test]
fn a_host_that_was_away_catches_up_also_after_what_it_missed_is_forgotten() {
    let server = Redis::single(Options::default());
    block_on(async {
        let mut link = open(&server.url()).await;
        let [mut a, mut b] = ["a", "b"].map(Host::new);
        for net in ["10.1.0.0/16", "10.2.0.0/16", "10.3.0.0/16"] {
            a.add(net, None, "x");
        }
        a.talk(&mut link).await;
        b.talk(&mut link).await;
        // Host b is away meanwhile.
        a.remove("10.1.0.0/16").unwrap();
        a.add("10.4.0.0/16", None, "x");
        a.talk(&mut link).await;
        assert_eq!(
            (size(&server, "HLEN", "blocks"), size(&server, "ZCARD", "ends")),
            (4, 1),
            "a removal is kept"
        );
        b.talk(&mut link).await;
        assert_eq!(b.prefixes(), ["10.2.0.0/16", "10.3.0.0/16", "10.4.0.0/16"]);
        // For more than a day: the removal itself is not there any more.
        a.remove("10.2.0.0/16").unwrap();
        a.talk(&mut link).await;
        age(&server, DAY_MS - 60_000);
        a.talk(&mut link).await;
        assert_eq!(size(&server, "HLEN", "blocks"), 4, "not yet");
        age(&server, 120_000);
        a.talk(&mut link).await;
        let sizes = [("HLEN", "blocks"), ("ZCARD", "changes"), ("ZCARD", "ends")];
        assert_eq!(sizes.map(|(command, part)| size(&server, command, part)), [2, 2, 0]);
        b.talk(&mut link).await;
        assert_eq!(b.prefixes(), ["10.3.0.0/16", "10.4.0.0/16"]);
        assert_eq!(a.prefixes(), b.prefixes());
    });
}

#[test]
fn lifetimes_are_those_of_the_store_s_clock_whatever_the_hosts_clocks_say() {
    let server = Redis::single(Options::default());
    block_on(async {
        let mut link = open(&server.url()).await;
        let [mut a, mut b] = ["a", "b"].map(Host::new);
        a.add(NET, Some(100), "x");
        a.add("198.51.100.0/24", Some(50), "x");
        a.talk(&mut link).await;
        age(&server, 60_000);
        b.talk(&mut link).await;
        assert_eq!(b.prefixes(), [NET], "the other one is over");
        assert_eq!(b.seconds_left(NET), Some(40));
        // An edit that waited for a store until it had run out still takes the place of what was there.
        a.add(NET, Some(1), "short");
        a.offset_ns += 2 * SECOND;
        a.talk(&mut link).await;
        age(&server, 10);
        b.talk(&mut link).await;
        assert_eq!(b.prefixes(), [""; 0]);
    });
}

/// A call with a block of eight seconds that hung on its way for so long: the clock of the host was so much earlier when the call was made.
fn hung(host: &mut Host, seconds: u64) -> Call<'static> {
    host.offset_ns -= seconds * SECOND;
    host.add(NET, Some(8), "short");
    let call = host.call();
    host.offset_ns += seconds * SECOND;
    call
}

#[test]
fn a_store_that_hangs_with_a_call_in_hand_does_not_prolong_blocks() {
    let server = Redis::single(Options::default());
    block_on(async {
        let mut link = open(&server.url()).await;
        let [mut a, mut b] = ["a", "b"].map(Host::new);
        b.talk(&mut link).await;
        for (seconds, left) in [(0, Some(8)), (4, Some(4)), (8, None), (9, None)] {
            // The answer tells what time it is at the store.
            a.talk(&mut link).await;
            let call = hung(&mut a, seconds);
            a.say(call, &mut link).await.unwrap();
            age(&server, 10);
            b.talk(&mut link).await;
            let listed = b.prefixes().contains(&NET.to_owned()).then(|| b.seconds_left(NET).unwrap());
            assert_eq!(listed, left, "{seconds} s");
        }
        // One that is older than ten seconds is left over, or a clock was set: what it says is said again, with what is left then.
        a.talk(&mut link).await;
        let call = hung(&mut a, 30);
        a.add("198.51.100.0/24", Some(60), "long");
        assert!(a.say(call, &mut link).await.unwrap().again);
        assert_eq!(a.gossip.waiting(), 2);
        a.talk(&mut link).await;
        age(&server, 10);
        b.talk(&mut link).await;
        assert_eq!((a.gossip.waiting(), b.prefixes()), (0, vec!["198.51.100.0/24".to_owned()]));
        // Nothing is known of the clock of a store that has started again.
        server.ask(&["HSET", &key("state"), "run", "0123456789abcdef"]);
        let call = hung(&mut a, 5);
        a.say(call, &mut link).await.unwrap();
        b.talk(&mut link).await;
        assert_eq!(b.seconds_left(NET), Some(8));
    });
}

#[test]
fn a_host_refuses_what_would_cut_it_off_and_the_others_take_it() {
    let server = Redis::single(Options::default());
    block_on(async {
        let mut link = open(&server.url()).await;
        let [mut a, mut b, mut c] = ["a", "b", "c"].map(Host::new);
        b.local.must_reach.push(p("203.0.113.7/32"));
        assert_eq!(
            b.try_add(p(NET), None, "x").unwrap_err(),
            "refused to block 203.0.113.0/24 on all hosts: 203.0.113.7/32 is a friend"
        );
        a.add(NET, None, "evil");
        for host in [&mut a, &mut b, &mut c] {
            host.talk(&mut link).await;
        }
        assert_eq!([a.list().len(), b.list().len(), c.list().len()], [1, 0, 1]);
        assert_eq!(
            b.log,
            ["refused to block 203.0.113.0/24, as a wants on all hosts: 203.0.113.7/32 is a friend"]
        );
        let now_ns = b.now_ns();
        let refused: Vec<_> = b.gossip.blocks(now_ns).filter_map(|(_, _, why)| why).collect();
        assert_eq!(refused, ["203.0.113.7/32 is a friend"]);
        b.local.must_reach.clear();
        let heard = b.gossip.judge_again(&b.local, now_ns);
        b.carry_out(heard.edits);
        assert_eq!(b.list(), a.list());
        // Anybody can write anything into the store.
        let rubbish = "redis.call('HSET', KEYS[1], ARGV[1], ARGV[2]) redis.call('ZADD', KEYS[2], redis.call('HINCRBY', KEYS[3], 'version', 1), ARGV[1])";
        let wide = "local r = cmsgpack.pack({99, 0, false, 'x', 'evil'}) ".to_owned()
            + &rubbish.replace("ARGV[2]", "r");
        for (script, prefix) in
            [(rubbish, "198.51.100.0/24"), (&wide, "0.0.0.0/0"), (&wide, "x\u{1b}"), (&wide, "::/1")]
        {
            server.ask(&[
                "EVAL",
                script,
                "3",
                &key("blocks"),
                &key("changes"),
                &key("state"),
                prefix,
                "rubbish",
            ]);
        }
        b.log.clear();
        b.talk(&mut link).await;
        assert_eq!(b.prefixes(), [NET]);
        assert_eq!(b.log.len(), 3, "{:?}", b.log);
        assert_eq!(
            b.log[0],
            "ignored a block for all hosts, said to be of \"evil\": 0.0.0.0/0 is too wide to be blocked on all hosts; use /8 or longer"
        );
        assert!(b.log.iter().all(|line| !line.contains(char::is_control)), "{:?}", b.log);
    });
}

#[test]
fn a_daemon_that_starts_again_keeps_both_layers_and_goes_on_under_its_name() {
    let server = Redis::single(Options::default());
    block_on(async {
        let mut link = open(&server.url()).await;
        let [mut a, mut b] = ["a", "b"].map(Host::new);
        a.add(NET, Some(600), "flood");
        a.add("10.1.0.0/16", None, "gone meanwhile");
        let mine = HostBlock { until_ns: Some(a.now_ns() + 60 * SECOND), reason: "mine".into() };
        let edit = a.gossip.block_here(p(NET), mine, a.now_ns());
        a.carry_out([edit]);
        assert_eq!(a.list()[1], (NET.to_owned(), "flood", Layer::Cluster), "the longer one");
        a.add("10.5.0.0/16", Some(60), "shorter");
        let edit =
            a.gossip.block_here(p("10.5.0.0/16"), HostBlock { until_ns: None, reason: "longer".into() }, 0);
        a.carry_out([edit]);
        let late = a.call();
        a.talk(&mut link).await;
        b.talk(&mut link).await;
        b.remove("10.1.0.0/16").unwrap();
        b.remove("10.5.0.0/16").unwrap();
        b.talk(&mut link).await;
        let shown: Vec<String> = a.gossip.shown().map(ToString::to_string).collect();
        let of_cluster = a.list().into_iter().filter(|(_, _, layer)| *layer == Layer::Cluster);
        assert_eq!(shown, of_cluster.map(|(prefix, ..)| prefix).collect::<Vec<_>>());
        assert_eq!(shown.len(), 2, "not the one that this host alone blocks for longer");
        let saved = serde_json::to_string(&a.gossip.saved()).unwrap();
        let saved: Saved = serde_json::from_str(&saved).unwrap();
        let mut next = Host::after("a", 2, &saved, a.local.list.clone());
        // An edit before it has heard anything, numbered from 1 again.
        next.add("10.9.0.0/16", None, "new");
        next.talk(&mut link).await;
        assert_eq!(next.prefixes(), ["10.5.0.0/16", "10.9.0.0/16", NET]);
        // What the daemon before had still on its way changes nothing.
        link.run(&[late], super::SOON).await.remove(0).unwrap();
        b.talk(&mut link).await;
        assert_eq!(b.prefixes(), ["10.9.0.0/16", NET]);
        b.remove(NET).unwrap();
        b.talk(&mut link).await;
        next.talk(&mut link).await;
        assert_eq!(
            next.list()[2],
            (NET.to_owned(), "mine", Layer::Local),
            "this host's own block is still there"
        );
        let edit = next.gossip.unblock_here(p(NET), &next.local, next.now_ns());
        next.carry_out(edit);
        assert_eq!(next.prefixes(), ["10.5.0.0/16", "10.9.0.0/16"]);
    });
}

#[test]
fn two_daemons_under_one_name_are_told_and_the_first_still_hears() {
    let server = Redis::single(Options::default());
    block_on(async {
        let mut link = open(&server.url()).await;
        let mut first = Host::new("a");
        let mut second = Host::after("a", 2, &Saved::default(), Default::default());
        first.talk(&mut link).await;
        second.add(NET, None, "x");
        second.talk(&mut link).await;
        first.add("10.1.0.0/16", None, "unheard");
        first.tick(&mut link).await.unwrap();
        assert_eq!(
            first.log,
            [
                "another host calls the store as \"a\", and is heard instead of this one; give each host a name of its own ([cluster] host) and start this one again",
                "a blocks 203.0.113.0/24 on all hosts until removed: x"
            ]
        );
        assert_eq!(first.prefixes(), ["10.1.0.0/16", NET]);
        second.talk(&mut link).await;
        assert_eq!(second.prefixes(), [NET]);
        assert_eq!(first.gossip.waiting(), 1);
    });
}

#[test]
fn the_second_machine_of_one_name_is_not_heard_and_knows_it_until_the_first_is_away() {
    let server = Redis::single(Options::default());
    block_on(async {
        let mut link = open(&server.url()).await;
        let machine = |owner: &str, incarnation: u64| {
            let mut host = Host::after("a", incarnation, &Saved::default(), Default::default());
            host.gossip = host.gossip.owned_by(owner.into());
            host
        };
        let (mut first, mut second) = (machine("one", 1), machine("two", 2));
        first.talk(&mut link).await;
        // Said before it has heard anything: it holds there, and waits.
        second.add("10.1.0.0/16", None, "early");
        second.talk(&mut link).await;
        let why = second.gossip.unheard().expect("it knows");
        assert!(why.starts_with("another host calls the store as \"a\""), "{why}");
        assert_eq!((second.log.as_slice(), second.gossip.waiting()), ([why.clone()].as_slice(), 1));
        let refused = second.try_add(p("10.2.0.0/16"), None, "late").unwrap_err();
        assert!(
            refused.contains("nothing was changed about 10.2.0.0/16") && refused.contains(&why),
            "{refused}"
        );
        assert_eq!(second.prefixes(), ["10.1.0.0/16"]);
        // The first is heard as before, the second hears it, and so does a daemon that starts again on the first machine.
        first.add(NET, None, "x");
        first.talk(&mut link).await;
        second.talk(&mut link).await;
        assert_eq!(
            (first.gossip.unheard(), second.prefixes()),
            (None, vec!["10.1.0.0/16".into(), NET.into()])
        );
        let mut first = machine("one", 3);
        first.talk(&mut link).await;
        assert_eq!((first.gossip.unheard(), first.prefixes()), (None, vec![NET.to_owned()]));
        second.talk(&mut link).await;
        assert!(second.gossip.unheard().is_some());
        // The other machine has been away for so long that the name is free.
        server.ask(&["ZINCRBY", &key("seen"), "-10000", "a"]);
        second.talk(&mut link).await;
        assert_eq!((second.gossip.unheard(), second.gossip.waiting()), (None, 0));
        first.talk(&mut link).await;
        assert!(first.gossip.unheard().is_some());
        assert_eq!(first.prefixes(), ["10.1.0.0/16", NET]);
        // A clock that went back by a day does not keep a name for a day.
        server.ask(&["ZADD", &key("seen"), "9999999999999", "a"]);
        first.talk(&mut link).await;
        assert!(first.gossip.unheard().is_some());
        server.ask(&["ZINCRBY", &key("seen"), "-10000", "a"]);
        first.talk(&mut link).await;
        assert_eq!(first.gossip.unheard(), None);
    });
}

#[test]
fn a_store_whose_clock_goes_back_is_noticed_by_every_host() {
    let server = Redis::single(Options::default());
    block_on(async {
        let mut link = open(&server.url()).await;
        for mut host in ["a", "b"].map(Host::new) {
            host.talk(&mut link).await;
            assert_eq!(host.tick(&mut link).await.unwrap().step_ms, 0);
            // For the host it is the same whether its own clock goes ahead.
            host.offset_ns += 3_600 * SECOND;
            let step_ms = host.tick(&mut link).await.unwrap().step_ms;
            assert!((-3_601_000..=-3_599_000).contains(&step_ms), "{step_ms}");
            assert!(host.log[0].starts_with("the store's clock went back by 3600."), "{:?}", host.log);
            assert_eq!(host.tick(&mut link).await.unwrap().step_ms, 0);
        }
    });
}

#[test]
fn a_daemon_whose_clock_was_set_back_is_heard_all_the_same() {
    let server = Redis::single(Options::default());
    block_on(async {
        let mut link = open(&server.url()).await;
        Host::after("a", 1_000, &Saved::default(), Default::default()).talk(&mut link).await;
        let mut next = Host::after("a", 7, &Saved::default(), Default::default());
        next.add(NET, None, "x");
        assert_eq!(next.talk(&mut link).await, 2, "one to be told");
        assert_eq!((next.gossip.waiting(), next.log.len(), size(&server, "HLEN", "blocks")), (0, 0, 1));
    });
}

#[test]
fn hosts_are_known_with_how_far_they_are_and_forgotten_after_a_day() {
    let server = Redis::single(Options::default());
    block_on(async {
        let mut link = open(&server.url()).await;
        let [mut a, mut b] = ["a", "b"].map(Host::new);
        b.local.must_reach.push(p("203.0.113.7/32"));
        a.add(NET, None, "x");
        a.add("10.1.0.0/16", None, "x");
        a.talk(&mut link).await;
        b.talk(&mut link).await;
        b.talk(&mut link).await;
        a.add("10.2.0.0/16", None, "x");
        let mut members = after_a_call(&mut a, &mut link).await;
        // Who was heard a millisecond earlier comes first.
        members.sort_by(|one, other| one.0.cmp(&other.0));
        assert_eq!(members, [("a".into(), State::Here, 1, 2, 0), ("b".into(), State::Here, 1, 2, 1)]);
        for (ago, state) in [(5_000, State::Late), (60_000, State::Away)] {
            server.ask(&["ZINCRBY", &key("seen"), &format!("-{ago}"), "b"]);
            let members = after_a_call(&mut a, &mut link).await;
            assert_eq!(members[0].1, state, "the longest unheard first: {members:?}");
        }
        assert_eq!(a.gossip.members()[0].facts.leases, 3);
        server.ask(&["ZINCRBY", &key("seen"), &format!("-{DAY_MS}"), "b"]);
        assert_eq!(after_a_call(&mut a, &mut link).await.len(), 1);
        assert_eq!(size(&server, "HLEN", "hosts"), 1);
    });
}

/// Of each member: name, state, how far it is behind, its blocks, and those that it refused.
async fn after_a_call(host: &mut Host, link: &mut RedisLink) -> Vec<(String, State, u64, u64, u64)> {
    host.tick(link).await.unwrap();
    let member = |member: &ratelimit_user::cluster::members::Member| {
        let facts = &member.facts;
        (member.host.clone(), member.state, member.behind, facts.blocks, facts.refused)
    };
    host.gossip.members().iter().map(member).collect()
}
