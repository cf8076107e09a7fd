//! Orders and questions of the dashboard on their way to the daemon. Each kind has a short queue of its own, so that an operator who blocks somebody
//! does not wait behind questions of others. What finds its queue full is turned away.

use std::net::IpAddr;

use tokio::sync::{mpsc, oneshot};

use crate::{
    control::protocol::{Order, Reply},
    failure::{ExitCode, Failure},
};

/// The most orders that wait, and the most questions.
const MAX_WAITING: usize = 8;

/// An order, and where its answer goes.
#[derive(Debug)]
pub struct Handed {
    /// The order that was given.
    pub order: Order,
    /// The address of the caller.
    pub from: Option<IpAddr>,
    /// The token that the caller has shown, for an order that changes something.
    pub token: Option<String>,
    /// Where the answer is sent to.
    pub reply: oneshot::Sender<Reply>,
}

/// The queues that orders and questions are put into.
#[derive(Clone, Debug)]
pub struct OrderQueues {
    orders: mpsc::Sender<Handed>,
    questions: mpsc::Sender<Handed>,
}

impl OrderQueues {
    /// Makes the queues, and the receivers of orders and of questions.
    pub fn new() -> (Self, [mpsc::Receiver<Handed>; 2]) {
        let (orders, ordered) = mpsc::channel(MAX_WAITING);
        let (questions, asked) = mpsc::channel(MAX_WAITING);
        (Self { orders, questions }, [ordered, asked])
    }

    /// Hands over an order or a question, and waits for the answer.
    pub async fn hand_over(&self, order: Order, from: Option<IpAddr>, token: Option<String>) -> Reply {
        let failed = |sentence: &str| Reply::Failed(Failure::new(ExitCode::NoDaemon, sentence));
        let (reply, answered) = oneshot::channel();
        let queue = if order.changes_lists() { &self.orders } else { &self.questions };
        if queue.try_send(Handed { order, from, token, reply }).is_err() {
            return failed("the daemon is busy with others' questions; ask again in a second");
        }
        answered.await.unwrap_or_else(|_| failed("the daemon is stopping"))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[tokio::test]
    async fn orders_that_nobody_takes_are_turned_away_and_do_not_pile_up() {
        let (queues, [mut orders, mut questions]) = OrderQueues::new();
        let queues = Arc::new(queues);
        let waiting: Vec<_> = (0..MAX_WAITING)
            .map(|_| {
                tokio::spawn({
                    let queues = Arc::clone(&queues);
                    async move { queues.hand_over(Order::BlockList, None, None).await }
                })
            })
            .collect();
        tokio::task::yield_now().await;
        let one_more = queues.hand_over(Order::BlockList, None, None).await;
        assert!(
            matches!(&one_more, Reply::Failed(failure) if failure.message.contains("busy")),
            "{one_more:?}"
        );
        // An order does not wait behind the questions.
        let block = Order::BlockDel { prefix: "10.0.0.1".to_owned(), cluster: false };
        let (ordered, _) = tokio::join!(
            async {
                let handed = orders.recv().await.unwrap();
                handed.reply.send(Reply::Done("done".to_owned())).is_ok()
            },
            async { assert_eq!(queues.hand_over(block, None, None).await, Reply::Done("done".to_owned())) }
        );
        assert!(ordered);
        let handed = questions.recv().await.unwrap();
        handed.reply.send(Reply::Done("done".into())).unwrap();
        let mut done = 0;
        drop((orders, questions));
        for one in waiting {
            match one.await.unwrap() {
                Reply::Done(_) => done += 1,
                Reply::Failed(failure) => assert!(failure.message.contains("stopping"), "{failure}"),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(done, 1);
    }
}
