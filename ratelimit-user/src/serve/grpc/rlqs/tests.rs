//! Reports of many buckets.

use std::sync::Mutex;

use super::*;
use crate::{
    config,
    requests::{Request, quota::MAX_HELD},
    serve::grpc::messages::quota::{BucketId, BucketUsage, UsageReports},
};

fn conversation(quotas: &Arc<Quotas>) -> Conversation {
    let text = "[source]\nlimits = [\"1/s\"]\n[[api]]\nname = \"shop\"\nlimits = [\"100/min\"]";
    let decisions = Arc::new(DecisionService::new(&config::parse(text, "test").unwrap().policy));
    let (domain, accounts, quotas) = (String::new(), HashMap::new(), Arc::clone(quotas));
    Conversation { decisions, quotas, domain, accounts, started: Instant::now() }
}

/// Makes a report of these buckets.
fn report(buckets: std::ops::Range<usize>) -> Bytes {
    let usage = |n: usize| {
        let bucket = [("user".to_owned(), format!("u{n}").into_bytes())].into_iter().collect();
        BucketUsage {
            bucket_id: Some(BucketId { bucket }),
            num_requests_allowed: 1,
            ..BucketUsage::default()
        }
    };
    let bucket_quota_usages = buckets.map(usage).collect();
    Bytes::from(prost::Message::encode_to_vec(&UsageReports {
        domain: "shop".to_owned(),
        bucket_quota_usages,
    }))
}

#[tokio::test]
async fn a_question_on_the_same_thread_is_answered_before_a_large_report_is_worked_off() {
    let mut conversation = conversation(&Arc::default());
    let (decisions, order) = (Arc::clone(&conversation.decisions), Arc::new(Mutex::new(Vec::new())));
    let (reported, asked) = (Arc::clone(&order), Arc::clone(&order));
    let reporting = tokio::spawn(async move {
        let answer = conversation.answer(report(0..1_000)).await.unwrap_or_else(|_| panic!("it is a report"));
        reported.lock().unwrap().push("report");
        assert!(answer.is_some() && conversation.accounts.len() == 1_000);
    });
    let asking = tokio::spawn(async move {
        for _ in 0..10 {
            let request = Request::new("somebody", "shop");
            assert!(
                decisions
                    .check(&request, Asking::Counted, |decision| decision.outcome.is_served())
                    .await
                    .unwrap()
            );
            asked.lock().unwrap().push("question");
            tokio::task::yield_now().await;
        }
    });
    reporting.await.unwrap();
    asking.await.unwrap();
    let order = order.lock().unwrap();
    assert_eq!(order[..10], ["question"; 10], "{order:?}");
}

#[tokio::test]
async fn buckets_beyond_those_of_all_streams_are_charged_and_given_nothing() {
    let quotas = Arc::new(Quotas::default());
    let other = ("other".to_owned(), BucketId::default());
    (0..MAX_HELD - 3).for_each(|_| assert!(quotas.join(&other)));
    let mut conversation = conversation(&quotas);
    let answer = conversation.answer(report(0..5)).await.unwrap_or_else(|_| panic!("it is a report"));
    assert!(answer.is_some());
    assert_eq!(conversation.accounts.len(), 3);
    let user = Request::new("u4", "shop");
    let remaining = |decision: &Decision<'_>| decision.limit.map(|limit| limit.remaining);
    let left = conversation.decisions.check(&user, Asking::Peeking, remaining).await.unwrap();
    assert_eq!(left, Some(99), "what was used is charged");
    drop(conversation);
    assert!((0..3).all(|_| quotas.join(&other)) && !quotas.join(&other), "they left");
}
