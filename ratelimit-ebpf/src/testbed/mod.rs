//! A host for unit tests: the packet path with every word in one map, two clocks, and sockets whose answers a test sets.
//!
//! `memory` in `ratelimit-user` runs the packet path on tables too, and takes compiled policies. This host takes the numbers of a policy directly, and
//! follows a packet into tail-called programs: a test sets what a socket shows.

extern crate std;

mod frames;
mod policies;
mod tables;

use std::{
    boxed::Box,
    cell::{Cell, RefCell},
    collections::HashMap,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    vec::Vec,
};

use ratelimit_common::abi::{
    DropEvent, Event, Lease, LimitSet, ListEntry, Policy, Reason, SourceKey, Verdict,
    counter::{Fate, REASON_SLOTS, SERVICE_SLOTS},
};

pub(crate) use self::{
    frames::{IpFrame, SYN, arp, from_mac, tcp, udp},
    policies::{aggregated, empty, limit, prefiltered, set, total, window},
    tables::WordPlace,
};
pub(crate) use crate::rows::WordTable;
use crate::{
    cookie::{self, Issued, Proof, Sockets},
    express,
    frame::{Canvas, Frame, Link},
    limit::{Leaves, Stages},
    link, mark,
    notes::{NOTES, Notes, leave},
    packet::{Family, Packet},
    pipeline, reject,
    reply::{ReplyFrame, Wire, draw, keep_head},
    rows::RowKey,
    segment::Segment,
    service,
    tables::{Relay, Successor, TailCallContext},
};

/// A second of either clock, in nanoseconds.
pub(crate) const SECOND_NS: u64 = 1_000_000_000;
/// A second as a time word.
pub(crate) const SECOND_Q8: u64 = SECOND_NS << 8;

/// The end of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FrameEnd {
    pub(crate) verdict: Verdict,
    pub(crate) service: u32,
    pub(crate) reason: Reason,
    pub(crate) fate: Fate,
}

/// A host with its policy, tables and clocks.
pub(crate) struct TestHost {
    pub(crate) policy: Box<Policy>,
    /// The express lane's copy of the policy.
    pub(crate) lane_policy: Box<Policy>,
    /// The precise clock in nanoseconds.
    pub(crate) now_ns: Cell<u64>,
    /// Nanoseconds that the coarse clock is behind the precise one.
    pub(crate) lag_ns: Cell<u64>,
    pub(crate) link: Link,
    /// Whether frames go through the express lane first.
    pub(crate) express: Cell<bool>,
    /// Frames that have ended in the express lane.
    pub(crate) expressed: Cell<u32>,
    pub(crate) users: Vec<LimitSet>,
    pub(crate) leases: RefCell<HashMap<u32, Lease>>,
    /// List entries of single addresses.
    pub(crate) lists: HashMap<(u64, u64), ListEntry>,
    /// Services of destinations, by the key that a packet is looked up with.
    pub(crate) destinations: HashMap<Vec<u8>, u32>,
    /// The programs that tail calls reach; the others do not exist.
    pub(crate) programs: Vec<Successor>,
    pub(crate) answers: bool,
    /// The listener's answer to a SYN.
    pub(crate) issued: Option<Issued>,
    /// What sockets show about any other segment.
    pub(crate) proof: Cell<Proof>,
    /// Whether a frame can be sent back.
    pub(crate) sends: bool,
    /// Whether the table of sources refuses new ones.
    pub(crate) full: Cell<bool>,
    /// Whether the ring buffer of drop events has room.
    pub(crate) hears: bool,
    /// How many of the next exchanges are lost to another CPU.
    pub(crate) lost_races: Cell<u32>,
    pub(crate) handed_over: RefCell<Vec<Successor>>,
    pub(crate) told: RefCell<Vec<DropEvent>>,
    pub(crate) noted: RefCell<Vec<Event>>,
    /// Offset, family and class of each frame that was marked.
    pub(crate) marked: RefCell<Vec<(usize, Family, u32)>>,
    /// Frames that were sent back.
    pub(crate) sent: RefCell<Vec<Vec<u8>>>,
    pub(crate) interface: Cell<u32>,
    words: RefCell<HashMap<WordPlace, u64>>,
    rows: RefCell<HashMap<(WordTable, RowKey), u64>>,
    counted: RefCell<Vec<(u32, u64)>>,
    notes: RefCell<[u64; NOTES]>,
    /// The current frame.
    frame: RefCell<Vec<u8>>,
}

/// Ends a program by unwinding: a tail call does not return.
struct HandedOver(Successor);

impl TestHost {
    pub(crate) fn new(mut policy: Box<Policy>) -> Self {
        policy.price_packets();
        let mut lane_policy = policy.clone();
        lane_policy.leave_lenient_to_limiter();
        Self {
            policy,
            lane_policy,
            now_ns: Cell::new(100 * SECOND_NS),
            lag_ns: Cell::new(0),
            link: Link::Ethernet,
            express: Cell::new(false),
            expressed: Cell::new(0),
            users: Vec::new(),
            leases: RefCell::default(),
            lists: HashMap::new(),
            destinations: HashMap::new(),
            programs: Vec::new(),
            answers: true,
            issued: None,
            proof: Cell::new(Proof::Nothing),
            sends: true,
            full: Cell::new(false),
            hears: true,
            lost_races: Cell::new(0),
            handed_over: RefCell::default(),
            told: RefCell::default(),
            noted: RefCell::default(),
            marked: RefCell::default(),
            sent: RefCell::default(),
            interface: Cell::new(1),
            words: RefCell::default(),
            rows: RefCell::default(),
            counted: RefCell::default(),
            notes: RefCell::new([0xa5a5_a5a5_a5a5_a5a5; NOTES]),
            frame: RefCell::default(),
        }
    }

    /// Runs one frame to its end.
    pub(crate) fn end(&self, bytes: &[u8]) -> FrameEnd {
        let frame = Frame::new(self.link, bytes);
        self.counted.borrow_mut().clear();
        *self.frame.borrow_mut() = Vec::from(bytes);
        let mut outcome = self.follow(|| match express::drop_known(&frame, self) {
            Some(verdict) => {
                self.expressed.set(self.expressed.get() + 1);
                verdict
            }
            None => pipeline::process(&frame, self, self),
        });
        while let Err(HandedOver(to)) = outcome {
            outcome = self.follow(|| match to {
                Successor::Answer => cookie::answer(&frame, self, self, self),
                Successor::Prove => cookie::prove(&frame, self, self, self),
                Successor::Mark => mark::mark(&frame, self, self),
                Successor::Reject => reject::reject(&frame, self, self),
            });
        }
        let Ok(verdict) = outcome else { unreachable!() };
        let counted = self.counted.borrow();
        let [(slot, len)] = counted[..] else { panic!("counted {counted:?}") };
        assert_eq!(len, bytes.len() as u64, "bytes of the frame");
        let within = slot % SERVICE_SLOTS;
        FrameEnd {
            verdict,
            service: slot / SERVICE_SLOTS,
            reason: Reason::from_code(within % REASON_SLOTS),
            fate: Fate::ALL[(within / REASON_SLOTS) as usize],
        }
    }

    /// The reason that a frame ends with.
    pub(crate) fn reason(&self, bytes: &[u8]) -> Reason {
        self.end(bytes).reason
    }

    /// How many of `times` equal frames pass.
    pub(crate) fn passed(&self, bytes: &[u8], times: u32) -> u32 {
        (0..times).filter(|_| self.end(bytes).verdict == Verdict::Pass).count() as u32
    }

    pub(crate) fn wait_ms(&self, ms: u64) {
        self.now_ns.set(self.now_ns.get() + ms * 1_000_000);
    }

    /// Now, as a time word of the precise clock.
    pub(crate) fn now_q8(&self) -> u64 {
        self.now_ns.get() << 8
    }

    pub(crate) fn list(&mut self, address: SourceKey, entry: ListEntry) {
        self.lists.insert((address.hi, address.lo), entry);
    }

    fn follow(&self, run: impl FnOnce() -> Verdict) -> Result<Verdict, HandedOver> {
        catch_unwind(AssertUnwindSafe(run)).map_err(|gone| match gone.downcast::<HandedOver>() {
            Ok(gone) => *gone,
            Err(panic) => resume_unwind(panic),
        })
    }
}

impl Leaves for TestHost {}
impl Stages for TestHost {}

impl Relay for TestHost {
    fn answers(&self) -> bool {
        self.answers
    }

    fn hand_over(&self, to: Successor, context: TailCallContext) {
        self.handed_over.borrow_mut().push(to);
        if self.programs.contains(&to) {
            leave(self, context);
            resume_unwind(Box::new(HandedOver(to)));
        }
    }

    fn service_at(&self, frame: &Frame<'_>, table: u32, class: u32) -> u32 {
        service::at_destination(self, frame, table, class)
    }

    fn judge_link(&self, frame: &Frame<'_>, policy: &Policy, passes: Reason) -> Reason {
        link::judge(self, frame, policy, self.interface.get(), passes)
    }
}

impl Notes for TestHost {
    fn note(&self, index: usize) -> u64 {
        self.notes.borrow()[index]
    }

    fn set_note(&self, index: usize, value: u64) {
        self.notes.borrow_mut()[index] = value;
    }
}

impl Wire for TestHost {
    fn answers(&self) -> bool {
        self.answers
    }

    fn reread<'f>(&self, frame: &Frame<'f>) -> Frame<'f> {
        *frame
    }

    fn send(&self, len: u64, reply: &ReplyFrame) -> bool {
        let mut frame = self.frame.borrow().clone();
        assert_eq!(len, frame.len() as u64, "the length of the frame");
        if !self.sends {
            return false;
        }
        keep_head(self, &Canvas::new(&mut frame)).expect("a head");
        frame.resize(reply.len() as usize, 0);
        draw(self, &mut Canvas::new(&mut frame), reply).expect("room for all of it");
        self.sent.borrow_mut().push(frame);
        true
    }

    fn mark(&self, network_at: usize, family: Family, dscp: u32) -> bool {
        self.marked.borrow_mut().push((network_at, family, dscp));
        self.sends
    }
}

impl Sockets for TestHost {
    fn issue(&self, _: &Segment, _: u16) -> Option<Issued> {
        self.issued
    }

    fn prove(&self, _: &Packet) -> Proof {
        self.proof.get()
    }

    fn mtu(&self) -> u32 {
        1_500
    }
}
