//! Where the page and the daemon meet: pictures one way, orders the other.
//!
//! A picture is made once for all who look. A browser that reads slowly gets no second picture before it has read the first: newer pictures replace
//! the one that waits. Orders wait in short queues, and are turned away when those are full (`order_queues.rs`).

use std::{net::IpAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use tokio::{
    sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc, watch},
    time::Instant,
};

use super::{
    metrics_source::MetricsSource,
    order_queues::{Handed, OrderQueues},
};
use crate::{
    control::protocol::{Order, Reply},
    failure::{ExitCode, Failure},
};

/// The time between two pictures.
const EVERY: Duration = Duration::from_secs(1);
/// Browsers that may look at once, beside those with an operator's token.
pub const MAX_VIEWERS: usize = 16;
/// Places for browsers that have shown an operator's token, so that nobody else on this host keeps operators out.
const OPERATOR_VIEWERS: usize = 4;

/// A handle of the gallery.
#[derive(Clone, Debug)]
pub struct Gallery(Arc<GalleryState>);

#[derive(Debug)]
struct GalleryState {
    pictures: watch::Sender<Option<Bytes>>,
    /// Notified when somebody begins to look.
    somebody: Notify,
    viewers: Arc<Semaphore>,
    operators: Arc<Semaphore>,
    /// The queues of orders to the daemon; absent where nothing is guarded.
    orders: Option<OrderQueues>,
    metrics: MetricsSource,
}

/// Takes pictures, from when a browser begins to look until none does.
pub trait Camera: Send {
    /// Returns what there is to see now, as an event of a stream.
    fn take(&mut self) -> impl Future<Output = Option<Bytes>> + Send;
}

/// A browser that looks, until it is dropped.
#[derive(Debug)]
pub struct Viewer {
    pictures: watch::Receiver<Option<Bytes>>,
    _place: OwnedSemaphorePermit,
}

impl Gallery {
    /// Makes the gallery of a daemon that guards interfaces, and the receivers of orders and of questions.
    pub fn of_host(metrics: MetricsSource) -> (Self, [mpsc::Receiver<Handed>; 2]) {
        let (orders, taken) = OrderQueues::new();
        (Self::new(Some(orders), metrics), taken)
    }

    /// Makes the gallery of a service that guards nothing: there is something to see and nothing to order.
    pub fn of_requests(metrics: MetricsSource) -> Self {
        Self::new(None, metrics)
    }

    fn new(orders: Option<OrderQueues>, metrics: MetricsSource) -> Self {
        Self(Arc::new(GalleryState {
            pictures: watch::Sender::new(None),
            somebody: Notify::new(),
            viewers: Arc::new(Semaphore::new(MAX_VIEWERS)),
            operators: Arc::new(Semaphore::new(OPERATOR_VIEWERS)),
            orders,
            metrics,
        }))
    }

    /// Returns the metrics of now, or a sentence that says why not.
    pub async fn metrics(&self) -> Result<String, String> {
        self.0.metrics.metrics().await
    }

    /// Whether the daemon guards interfaces, so that it can be asked about packets.
    pub fn guards(&self) -> bool {
        self.0.orders.is_some()
    }

    /// Adds a viewer, if there is a place.
    pub fn look(&self, is_operator: bool) -> Option<Viewer> {
        let place = Arc::clone(&self.0.viewers).try_acquire_owned();
        let place = match place {
            Err(_) if is_operator => Arc::clone(&self.0.operators).try_acquire_owned(),
            place => place,
        };
        let viewer = Viewer { pictures: self.0.pictures.subscribe(), _place: place.ok()? };
        self.0.somebody.notify_one();
        Some(viewer)
    }

    /// Hands over a question and waits for the answer.
    pub async fn ask(&self, order: Order, from: Option<IpAddr>) -> Reply {
        self.order(order, from, None).await
    }

    /// Hands over an order of a caller that has shown this token, and waits for the answer.
    pub async fn order(&self, order: Order, from: Option<IpAddr>, token: Option<String>) -> Reply {
        let guards_nothing = "this service guards no interface; ratelimit run does";
        match &self.0.orders {
            Some(orders) => orders.hand_over(order, from, token).await,
            None => Reply::Failed(Failure::new(ExitCode::Unsupported, guards_nothing)),
        }
    }

    /// Shows a picture every second while somebody looks, for ever. A camera is made when somebody begins to look, and dropped when nobody looks any more.
    /// A picture that cannot be taken is left out.
    pub async fn show<C: Camera>(&self, begin: impl FnMut() -> C) {
        self.show_every(EVERY, begin).await;
    }

    async fn show_every<C: Camera>(&self, every: Duration, mut begin: impl FnMut() -> C) {
        loop {
            while self.0.pictures.receiver_count() == 0 {
                self.0.somebody.notified().await;
            }
            let mut camera = begin();
            while self.0.pictures.receiver_count() > 0 {
                let begun = Instant::now();
                if let Some(picture) = camera.take().await {
                    self.0.pictures.send_replace(Some(picture));
                }
                tokio::time::sleep_until(begun + every).await;
            }
            // Forgets the last picture, so that no browser begins with a picture of long ago.
            self.0.pictures.send_replace(None);
        }
    }
}

impl Viewer {
    /// Waits for a picture that the viewer has not seen, and returns it.
    pub async fn next(&mut self) -> Option<Bytes> {
        loop {
            self.pictures.changed().await.ok()?;
            if let Some(picture) = self.pictures.borrow_and_update().clone() {
                return Some(picture);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    const OFTEN: Duration = Duration::from_millis(2);

    struct Numbers(Arc<AtomicU32>);

    impl Camera for Numbers {
        async fn take(&mut self) -> Option<Bytes> {
            Some(self.0.fetch_add(1, Ordering::Relaxed).to_string().into())
        }
    }

    /// A gallery whose pictures are numbers.
    fn numbered() -> (Gallery, Arc<AtomicU32>) {
        let (gallery, taken) = (
            Gallery::of_requests(MetricsSource::new(|| async { Ok(String::new()) })),
            Arc::new(AtomicU32::new(0)),
        );
        let (shown, count) = (gallery.clone(), Arc::clone(&taken));
        tokio::spawn(async move { shown.show_every(OFTEN, || Numbers(Arc::clone(&count))).await });
        (gallery, taken)
    }

    /// Waits for as long as it takes to take some pictures.
    async fn pass() {
        for _ in 0..10 {
            tokio::time::sleep(OFTEN).await;
        }
    }

    #[tokio::test]
    async fn pictures_are_taken_once_for_all_and_only_while_somebody_looks() {
        let (gallery, taken) = numbered();
        pass().await;
        assert_eq!(taken.load(Ordering::Relaxed), 0, "nobody looks");
        let (mut one, mut other) = (gallery.look(false).unwrap(), gallery.look(false).unwrap());
        assert_eq!((one.next().await.unwrap(), other.next().await.unwrap()), ("0".into(), "0".into()));
        assert_eq!(one.next().await.unwrap(), "1");
        drop((one, other));
        pass().await;
        let before = taken.load(Ordering::Relaxed);
        pass().await;
        assert_eq!(taken.load(Ordering::Relaxed), before, "nobody looks any more");
        let mut third = gallery.look(false).unwrap();
        assert_eq!(third.next().await.unwrap(), before.to_string(), "and begins with no old one");
    }

    #[tokio::test]
    async fn who_reads_slowly_goes_on_with_the_newest_picture() {
        let (gallery, taken) = numbered();
        let mut slow = gallery.look(false).unwrap();
        assert_eq!(slow.next().await.unwrap(), "0");
        while taken.load(Ordering::Relaxed) < 10 {
            tokio::time::sleep(OFTEN).await;
        }
        let newest = taken.load(Ordering::Relaxed) - 1;
        assert_eq!(slow.next().await.unwrap(), newest.to_string());
    }

    #[tokio::test]
    async fn there_are_places_for_some_a_few_more_for_operators_and_they_come_back() {
        let gallery = Gallery::of_requests(MetricsSource::new(|| async { Ok(String::new()) }));
        let mut viewers: Vec<_> = (0..MAX_VIEWERS).map(|_| gallery.look(false).unwrap()).collect();
        assert!(gallery.look(false).is_none());
        let operators: Vec<_> = (0..OPERATOR_VIEWERS).map(|_| gallery.look(true).unwrap()).collect();
        assert!(gallery.look(true).is_none());
        viewers.pop();
        assert!(gallery.look(false).is_some());
        drop(operators);
        assert!(gallery.look(true).is_some());
    }
}
