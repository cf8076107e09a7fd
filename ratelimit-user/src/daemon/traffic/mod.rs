//! Looks at the traffic while somebody wants to see it: reads samples ten times a second, and makes a view once a second.
//!
//! This happens on a thread of its own, which ends ten seconds after the last reader has gone. From then on no frame is copied, and nothing is read.

pub(super) mod drops;
pub(super) mod trace;

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    thread,
    time::{Duration, Instant},
};

use ratelimit_common::abi::sample::SampleHeader;
use tokio::sync::{broadcast, watch};

use crate::{
    clock,
    compile::Places,
    dataplane::{
        kernel::Meters,
        samples::{OpenSamples, Samples},
    },
    failure::Failure,
    log,
    policy::Policy,
    stats::{
        Snapshot,
        feed::{ViewFeed, Views},
        sampled::Sampled,
        view::{StatsSpan, StatsView},
    },
};

/// The length of an epoch of the sampler, for which its budget is meant.
const EPOCH: Duration = Duration::from_millis(100);
/// The number of epochs in a view.
const EPOCHS: u32 = 10;
/// How long views go on without a reader, so that a reader that asks once a second does not begin anew each time.
const GRACE: Duration = Duration::from_secs(10);
/// The largest number of samples in one view. The sampler's budget is a tenth of it.
const MOST_SAMPLES: usize = 200_000;
/// The pause before buffers that could not be opened are tried again.
const TRY_AGAIN: Duration = Duration::from_secs(5);
/// How many epochs a reader of samples may be behind.
const EPOCHS_BEHIND: usize = 16;
/// The stack of the thread in bytes. The kernel's policy has hundreds of kilobytes, and a build that is not optimised has several copies of it on the stack.
const STACK: usize = 16 << 20;
/// How many frames a reader of copies may be behind.
const BACKLOG: usize = 8_192;

/// A copy of a sampled frame.
#[derive(Clone, Debug)]
pub(super) struct CopiedFrame {
    /// The kernel program's header about the frame.
    pub(super) header: SampleHeader,
    /// The first bytes of the frame.
    pub(super) bytes: Box<[u8]>,
}

/// The samples of one epoch.
#[derive(Clone, Debug)]
pub(super) struct EpochSamples {
    /// The sampled frames.
    pub(super) samples: Vec<Sampled>,
    /// The number of samples that were lost.
    pub(super) lost: u64,
}

/// The channels to readers of live traffic (`top`, `watch`, the dashboard), and the sampler.
#[derive(Debug)]
pub(super) struct Traffic {
    views: watch::Sender<Option<Arc<StatsView>>>,
    copies: broadcast::Sender<Arc<CopiedFrame>>,
    epochs: broadcast::Sender<Arc<EpochSamples>>,
    /// Why frames could not be sampled the last time that somebody looked.
    problem: Mutex<Option<String>>,
    /// The maps of the sampler; `None` while the thread has them.
    samples: Mutex<Option<Samples>>,
}

impl Traffic {
    pub(super) fn new(samples: Option<Samples>) -> Arc<Self> {
        let (views, copies) = (watch::Sender::new(None), broadcast::Sender::new(BACKLOG));
        let epochs = broadcast::Sender::new(EPOCHS_BEHIND);
        Arc::new(Self { views, copies, epochs, problem: Mutex::default(), samples: Mutex::new(samples) })
    }

    /// Returns the feed for readers of views.
    pub(super) fn feed(self: &Arc<Self>, host: &Arc<impl ViewSource>) -> ViewFeed {
        let (traffic, host) = (Arc::clone(self), watched(host));
        ViewFeed::new(move || traffic.look(&host))
    }

    /// Returns a stream of copies of sampled frames, from now on.
    pub(super) fn copies(
        self: &Arc<Self>,
        host: &Arc<impl ViewSource>,
    ) -> broadcast::Receiver<Arc<CopiedFrame>> {
        let mut samples = self.samples();
        let copies = self.copies.subscribe();
        self.begin(&mut samples, &watched(host));
        copies
    }

    /// Returns a stream of all samples, epoch by epoch, from now on.
    pub(super) fn epochs(
        self: &Arc<Self>,
        host: &Arc<impl ViewSource>,
    ) -> broadcast::Receiver<Arc<EpochSamples>> {
        let mut samples = self.samples();
        let epochs = self.epochs.subscribe();
        self.begin(&mut samples, &watched(host));
        epochs
    }

    /// Returns why frames cannot be sampled, if that was tried and failed.
    pub(super) fn problem(&self) -> Option<String> {
        self.problem.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Notes whether frames can be sampled, and logs each change.
    fn note(&self, problem: Option<&str>) {
        let mut known = self.problem.lock().unwrap_or_else(PoisonError::into_inner);
        if known.as_deref() != problem {
            match problem {
                Some(problem) => log::warning(format!("views of the traffic have no sources: {problem}")),
                None => log::info("frames are sampled again"),
            }
            *known = problem.map(str::to_owned);
        }
    }

    fn look(self: &Arc<Self>, host: &Weak<dyn ViewSource>) -> Views {
        // The lock is held: the thread ends only under the lock, when nobody looks.
        let mut samples = self.samples();
        let views = self.views.subscribe();
        self.begin(&mut samples, host);
        views
    }

    fn begin(self: &Arc<Self>, samples: &mut Option<Samples>, host: &Weak<dyn ViewSource>) {
        let Some(taken) = samples.take() else { return };
        let (traffic, host) = (Arc::clone(self), Weak::clone(host));
        let begun = thread::Builder::new()
            .name("traffic".to_owned())
            .stack_size(STACK)
            .spawn(move || traffic.run(taken, &host));
        if let Err(error) = begun {
            log::warning(format!(
                "the traffic cannot be looked at until a restart: no thread could be started: {error}"
            ));
        }
    }

    fn samples(&self) -> MutexGuard<'_, Option<Samples>> {
        self.samples.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_looked_at(&self) -> bool {
        self.views.receiver_count() + self.copies.receiver_count() + self.epochs.receiver_count() > 0
    }

    fn run(&self, mut samples: Samples, host: &Weak<dyn ViewSource>) {
        loop {
            self.watch(&mut samples, host);
            let mut place = self.samples();
            // A reader may have come in the last moment, when the thread still had the maps.
            if host.strong_count() == 0 || !self.is_looked_at() {
                *place = Some(samples);
                // The last view is dropped, because a later reader must not get an old one.
                self.views.send_replace(None);
                return;
            }
        }
    }

    /// Makes views until nobody has looked for a while, or until buffers have to be opened anew.
    fn watch(&self, samples: &mut Samples, host: &Weak<dyn ViewSource>) {
        let opened = samples.open();
        let problem = opened.as_ref().err().map(ToString::to_string);
        self.note(problem.as_deref());
        let (mut open, began) = (opened.ok(), Instant::now());
        let (mut last_looked, mut last_viewed) = (began, began);
        let Some(mut before) = HostSnapshot::take(host) else { return };
        while last_looked.elapsed() < GRACE {
            let are_views_wanted = last_viewed.elapsed() < GRACE;
            let (taken, lost) = self.sample(open.as_mut(), before.at + EPOCHS * EPOCH, are_views_wanted);
            let Some(alive) = host.upgrade() else { return };
            if are_views_wanted {
                let Some(after) = HostSnapshot::take(host) else { return };
                if let Some(mut view) = view(&before, &after, &taken, lost, problem.as_deref()) {
                    alive.fill_in(&mut view);
                    self.views.send_replace(Some(Arc::new(view)));
                }
                before = after;
            } else {
                // Counters are read only for views, and again when somebody wants one.
                before.at = Instant::now();
            }
            if self.is_looked_at() {
                last_looked = Instant::now();
            }
            if self.views.receiver_count() > 0 {
                if !are_views_wanted {
                    let Some(anew) = HostSnapshot::take(host) else { return };
                    before = anew;
                }
                last_viewed = Instant::now();
            }
            let is_outdated = open.as_ref().is_some_and(OpenSamples::is_outdated);
            // All buffers are opened anew if a CPU has come or gone, or if they could not be opened before.
            if is_outdated || (open.is_none() && began.elapsed() >= TRY_AGAIN) {
                return;
            }
        }
    }

    /// Takes samples until a moment, epoch by epoch. Returns the samples, if they are wanted, and how many were lost.
    fn sample(
        &self,
        mut open: Option<&mut OpenSamples<'_>>,
        until: Instant,
        are_wanted: bool,
    ) -> (Vec<Sampled>, u64) {
        let (mut taken, mut lost) = (Vec::new(), 0);
        loop {
            let left = until.saturating_duration_since(Instant::now());
            thread::sleep(left.min(EPOCH));
            if let Some(open) = &mut open {
                let epoch = self.read_epoch(open);
                lost += epoch.lost;
                if are_wanted {
                    let room = MOST_SAMPLES - taken.len();
                    lost += epoch.samples.len().saturating_sub(room) as u64;
                    taken.extend(epoch.samples.iter().take(room));
                }
                if self.epochs.receiver_count() > 0 {
                    let _gone = self.epochs.send(Arc::new(epoch));
                }
            }
            if left <= EPOCH {
                return (taken, lost);
            }
        }
    }

    fn read_epoch(&self, open: &mut OpenSamples<'_>) -> EpochSamples {
        // If the map cannot be written, the sampler goes on with the epoch that it has.
        let _written = open.begin_epoch();
        let mut samples = Vec::new();
        let mut full = 0;
        let lost = open.read(|header, bytes| {
            if header.weight() == 0 {
                // This copy was made for a drop event, and stands for no frame.
            } else if samples.len() < MOST_SAMPLES {
                samples.push(Sampled::of(header, bytes));
            } else {
                full += 1;
            }
            if self.copies.receiver_count() > 0 {
                let _gone = self.copies.send(Arc::new(CopiedFrame { header, bytes: bytes.into() }));
            }
        });
        EpochSamples { samples, lost: lost + full }
    }
}

/// The source of views: the running host.
pub(super) trait ViewSource: Send + Sync + 'static {
    /// Returns the policy in force, and the counters to read.
    fn look(&self) -> ViewedHost;

    /// Fills in how much the rows of a view have left of their limits. Values that cannot be read are left out.
    fn fill_in(&self, view: &mut StatsView);
}

fn watched<H: ViewSource>(host: &Arc<H>) -> Weak<dyn ViewSource> {
    Arc::<H>::downgrade(host)
}

/// The policy and services in force at one moment, and the counters to read.
pub(super) struct ViewedHost {
    pub(super) meters: Meters,
    pub(super) services: Places,
    pub(super) policy: Policy,
    pub(super) attack_state: &'static str,
}

/// The host and its counters at one moment.
struct HostSnapshot {
    at: Instant,
    seen: ViewedHost,
    counters: Option<Snapshot>,
}

impl HostSnapshot {
    /// Takes a snapshot; `None` if the daemon is gone.
    fn take(host: &Weak<dyn ViewSource>) -> Option<Self> {
        let seen = host.upgrade()?.look();
        // The counters are read without the lock of the host: many services take thousands of system calls.
        let counters = seen.snapshot().ok();
        Some(Self { at: Instant::now(), seen, counters })
    }
}

impl ViewedHost {
    fn snapshot(&self) -> Result<Snapshot, Failure> {
        Ok(Snapshot::of(&self.meters.counted()?))
    }
}

fn view(
    before: &HostSnapshot,
    after: &HostSnapshot,
    samples: &[Sampled],
    lost: u64,
    problem: Option<&str>,
) -> Option<StatsView> {
    let span = StatsSpan {
        before: before.counters.as_ref()?,
        after: after.counters.as_ref()?,
        samples,
        lost,
        span_ms: u64::try_from((after.at - before.at).as_millis()).unwrap_or(u64::MAX),
        unix_ms: clock::unix_ms(),
        policy: &after.seen.policy,
        attack_state: after.seen.attack_state,
        problem,
    };
    Some(StatsView::of(&span, |number| after.seen.services.of_number(number)))
}
