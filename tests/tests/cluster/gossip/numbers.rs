//! Many blocks: portions, bounds, and what a call costs.

use std::time::Instant;

use ratelimit_tests::redis::{Options, Redis};
use ratelimit_user::store::redis::RedisLink;

use super::{Host, age, block_on, key, numbered, open, size};

/// So many blocks, published by one host.
async fn published(link: &mut RedisLink, host: &mut Host, blocks: std::ops::Range<u32>, for_s: Option<u64>) {
    for n in blocks {
        host.try_add(numbered(n), for_s, "a flood of something").unwrap();
        if host.gossip.waiting() >= 10_000 {
            host.talk(link).await;
        }
    }
    host.talk(link).await;
}

fn sent(server: &Redis, field: &str) -> u64 {
    server.info(field).parse().unwrap()
}

#[test]
fn ten_thousand_blocks_are_caught_up_in_portions_and_cost_nothing_when_nothing_changes() {
    let server = Redis::single(Options::default());
    block_on(async {
        let mut link = open(&server.url()).await;
        let [mut a, mut b] = ["a", "b"].map(Host::new);
        let begun = Instant::now();
        published(&mut link, &mut a, 0..10_000, None).await;
        let publishing = begun.elapsed();
        let (begun, bytes) = (Instant::now(), sent(&server, "total_net_output_bytes"));
        let calls = b.talk(&mut link).await;
        let (catching_up, bytes) = (begun.elapsed(), sent(&server, "total_net_output_bytes") - bytes);
        assert_eq!(calls, 10);
        assert_eq!(b.local.list, {
            let mut list = a.local.list.clone();
            list.values_mut().for_each(|(held, _)| held.until_ns = None);
            list
        });
        server.ask(&["CONFIG", "RESETSTAT"]);
        for _ in 0..1_000 {
            assert!(b.tick(&mut link).await.unwrap().edits.is_empty());
        }
        let stat = server.info("cmdstat_evalsha");
        let of = |name: &str| {
            let field = stat.split(',').find_map(|field| field.strip_prefix(name)).unwrap();
            field.trim_start_matches('=').parse::<f64>().unwrap()
        };
        assert_eq!(of("calls"), 1_000.0, "one command a call");
        let (input, output) =
            (sent(&server, "total_net_input_bytes"), sent(&server, "total_net_output_bytes"));
        println!(
            "10000 blocks: published in {publishing:?}, caught up in {calls} calls, {catching_up:?}, {bytes} bytes; \
             a call when nothing changes: {} us of the server, {} bytes there, {} bytes back; memory of a block: {} bytes",
            of("usec_per_call"),
            input / 1_000,
            output / 1_000,
            memory(&server) / 10_000
        );
        assert!(of("usec_per_call") < 2_000.0, "{stat}");
        assert!(output / 1_000 < 1_000, "{output}");
    });
}

fn memory(server: &Redis) -> i64 {
    let of = |part: &str| match server.ask(&["MEMORY", "USAGE", &key(part), "SAMPLES", "0"]) {
        redis::Value::Int(bytes) => bytes,
        _ => 0,
    };
    ["blocks", "changes", "ends"].map(of).iter().sum()
}

#[test]
fn there_are_at_most_a_hundred_thousand_and_as_many_that_are_over() {
    let server = Redis::single(Options::default());
    block_on(async {
        let mut link = open(&server.url()).await;
        let mut a = Host::new("a");
        published(&mut link, &mut a, 0..100_000, Some(3_600)).await;
        println!("memory of 100000 blocks with an end: {} bytes", memory(&server));
        assert!(a.log.is_empty(), "{:?}", a.log);
        a.try_add(numbered(100_000), None, "too many").unwrap();
        a.talk(&mut link).await;
        assert_eq!(
            a.log,
            [
                "the store refused to block 10.1.134.160/32 on all hosts: there are 100000 blocks for all hosts already, which is the most there can be; remove some"
            ]
        );
        assert!(!a.local.list.contains_key(&numbered(100_000)), "nor here any more");
        // One that is there may change, and one may take the place of one that goes.
        a.try_add(numbered(5), None, "changed").unwrap();
        a.remove("10.0.0.6/32").unwrap();
        a.try_add(numbered(100_001), None, "in its place").unwrap();
        a.log.clear();
        a.talk(&mut link).await;
        assert_eq!(a.log, [""; 0]);
        // All with an end are over: that leaves room for others, and they are forgotten as soon as they are too many.
        age(&server, 3_700_000);
        let mut b = Host::new("b");
        b.talk(&mut link).await;
        published(&mut link, &mut b, 200_000..205_000, None).await;
        let blocks = size(&server, "HLEN", "blocks");
        assert!((105_000..=105_500).contains(&blocks), "{blocks}");
        assert_eq!(size(&server, "ZCARD", "changes"), blocks);
    });
}
