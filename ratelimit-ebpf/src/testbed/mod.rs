//! A host for unit tests and for the fuzzer: the packet path with every word in one map, two clocks, and sockets whose answers a test sets.
//!
//! `memory` in `ratelimit-user` runs the packet path on tables too, and takes compiled policies. This host takes the numbers of a policy directly, and
//! follows a packet into tail-called programs: a test sets what a socket shows. Replies and marks are written into copies of the frame, between bytes that
//! must stay as they are.

extern crate std;

#[cfg(test)]
mod frames;
#[cfg(test)]
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

#[cfg(test)]
pub(crate) use self::tables::ROW;
pub use self::tables::WordPlace;
#[cfg(test)]
pub(crate) use self::{
    frames::{IpFrame, SYN, arp, from_mac, tcp, udp},
    policies::{aggregated, empty, limit, prefiltered, set, total, window},
};
pub use crate::rows::WordTable;
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
pub const SECOND_NS: u64 = 1_000_000_000;
/// A second as a time word.
pub const SECOND_Q8: u64 = SECOND_NS << 8;

/// Bytes on each side of a frame.
const GUARD: usize = 64;

/// The end of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameEnd {
    /// The verdict of the program that judged the frame last.
    pub verdict: Verdict,
    /// The number of the service that the frame was counted for.
    pub service: u32,
    /// The reason that the frame was counted for.
    pub reason: Reason,
    /// The fate that the frame was counted with.
    pub fate: Fate,
}

/// A host with its policy, tables and clocks.
#[derive(Debug)]
pub struct TestHost {
    /// The policy in force.
    pub policy: Box<Policy>,
    /// The express lane's copy of the policy.
    pub lane_policy: Box<Policy>,
    /// The precise clock in nanoseconds.
    pub now_ns: Cell<u64>,
    /// Nanoseconds that the coarse clock is behind the precise one.
    pub lag_ns: Cell<u64>,
    /// The kind of link that frames come in by.
    pub link: Link,
    /// Whether frames go through the express lane first.
    pub express: Cell<bool>,
    /// Frames that have ended in the express lane.
    pub expressed: Cell<u32>,
    /// The limits of users, by index.
    pub users: Vec<LimitSet>,
    /// Leases of users' limits, by place.
    pub leases: RefCell<HashMap<u32, Lease>>,
    /// List entries of single addresses.
    pub lists: HashMap<(u64, u64), ListEntry>,
    /// Services of destinations, by the key that a packet is looked up with.
    pub destinations: HashMap<Vec<u8>, u32>,
    /// The programs that tail calls reach; the others do not exist.
    pub programs: Vec<Successor>,
    /// Whether replies can be sent on the kind of link.
    pub answers: bool,
    /// Whether replies would lack their VLAN tag on the interface, so that none are sent.
    pub silent: bool,
    /// The listener's answer to a SYN.
    pub issued: Option<Issued>,
    /// What sockets show about any other segment.
    pub proof: Cell<Proof>,
    /// Whether the host forwards every packet.
    pub forwards: bool,
    /// The MTU of the interface.
    pub mtu: u32,
    /// Whether a frame can be sent back or marked.
    pub sends: bool,
    /// What memory has in it that nobody has written: the bytes around a frame, those by which a frame grows, and old notes. Nothing may depend on it.
    pub stale: u8,
    /// Whether the table of sources refuses new ones.
    pub full: Cell<bool>,
    /// Whether the ring buffer of drop events has room.
    pub hears: bool,
    /// How many of the next exchanges are lost to another CPU.
    pub lost_races: Cell<u32>,
    /// Tail calls, of programs that do not exist too.
    pub handed_over: RefCell<Vec<Successor>>,
    /// Drop events for the daemon.
    pub told: RefCell<Vec<DropEvent>>,
    /// Events that were counted.
    pub noted: RefCell<Vec<Event>>,
    /// Offset, family and class of each frame that was marked.
    pub marked: RefCell<Vec<(usize, Family, u32)>>,
    /// Frames as they were marked.
    pub painted: RefCell<Vec<Vec<u8>>>,
    /// Frames that were sent back.
    pub sent: RefCell<Vec<Vec<u8>>>,
    /// The number of the interface that frames come in by.
    pub interface: Cell<u32>,
    words: RefCell<HashMap<WordPlace, u64>>,
    rows: RefCell<HashMap<(WordTable, RowKey), u64>>,
    /// Rows that were ever made: none is made where another one has been.
    made: Cell<u64>,
    counted: RefCell<Vec<(u32, u64)>>,
    notes: RefCell<[u64; NOTES]>,
    /// The current frame.
    frame: RefCell<Vec<u8>>,
}

/// Ends a program by unwinding: a tail call does not return.
struct HandedOver(Successor);

impl TestHost {
    /// A host with empty tables and no programs but the first.
    pub fn new(mut policy: Box<Policy>) -> Self {
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
            silent: false,
            issued: None,
            proof: Cell::new(Proof::Nothing),
            forwards: false,
            mtu: 1_500,
            sends: true,
            stale: 0xa5,
            full: Cell::new(false),
            hears: true,
            lost_races: Cell::new(0),
            handed_over: RefCell::default(),
            told: RefCell::default(),
            noted: RefCell::default(),
            marked: RefCell::default(),
            painted: RefCell::default(),
            sent: RefCell::default(),
            interface: Cell::new(1),
            words: RefCell::default(),
            rows: RefCell::default(),
            made: Cell::new(0),
            counted: RefCell::default(),
            notes: RefCell::new([0xa5a5_a5a5_a5a5_a5a5; NOTES]),
            frame: RefCell::default(),
        }
    }

    /// Forgets everything that frames have left behind. Policy, clocks and settings stay.
    pub fn forget_frames(&self) {
        self.words.borrow_mut().clear();
        self.rows.borrow_mut().clear();
        self.handed_over.borrow_mut().clear();
        self.told.borrow_mut().clear();
        self.noted.borrow_mut().clear();
        self.marked.borrow_mut().clear();
        self.painted.borrow_mut().clear();
        self.sent.borrow_mut().clear();
        self.expressed.set(0);
        self.notes.replace([u64::from_ne_bytes([self.stale; 8]); NOTES]);
    }

    /// Runs one frame to its end.
    pub fn end(&self, bytes: &[u8]) -> FrameEnd {
        let around = [self.stale; GUARD];
        let room = [&around, bytes, &around].concat();
        let frame = Frame::new(self.link, &room[GUARD..GUARD + bytes.len()]);
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
    pub fn reason(&self, bytes: &[u8]) -> Reason {
        self.end(bytes).reason
    }

    /// How many of `times` equal frames pass.
    pub fn passed(&self, bytes: &[u8], times: u32) -> u32 {
        (0..times).filter(|_| self.end(bytes).verdict == Verdict::Pass).count() as u32
    }

    /// Lets time pass on both clocks.
    pub fn wait_ms(&self, ms: u64) {
        self.now_ns.set(self.now_ns.get() + ms * 1_000_000);
    }

    /// Now, as a time word of the precise clock.
    pub fn now_q8(&self) -> u64 {
        self.now_ns.get() << 8
    }

    /// Puts an entry of one address on the lists.
    pub fn list(&mut self, address: SourceKey, entry: ListEntry) {
        self.lists.insert((address.hi, address.lo), entry);
    }

    /// The current frame, lengthened at its front or shortened at its end as the kernel does it, and written to; `None` if that fails.
    fn written(&self, len: usize, write: impl FnOnce(&mut Canvas<'_>) -> Option<()>) -> Option<Vec<u8>> {
        let frame = self.frame.borrow();
        let grown = len.saturating_sub(frame.len());
        let around = [self.stale; GUARD];
        let mut room = around.to_vec();
        room.resize(GUARD + grown, self.stale);
        room.extend(&frame[..len - grown]);
        room.extend(around);
        let done = write(&mut Canvas::new(&mut room[GUARD..GUARD + len]));
        assert_eq!(
            (&room[..GUARD], &room[GUARD + len..]),
            (&around[..], &around[..]),
            "bytes around the frame"
        );
        done.map(|()| Vec::from(&room[GUARD..GUARD + len]))
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
        self.answers && !self.silent
    }

    fn reread<'f>(&self, frame: &Frame<'f>) -> Frame<'f> {
        *frame
    }

    fn send(&self, len: u64, reply: &ReplyFrame) -> bool {
        let here = self.frame.borrow().len();
        assert_eq!(len, here as u64, "the length of the frame");
        if !self.sends {
            return false;
        }
        self.written(here, |canvas| keep_head(self, canvas)).expect("a head");
        let sent = self.written(reply.len() as usize, |canvas| draw(self, canvas, reply));
        self.sent.borrow_mut().push(sent.expect("room for all of it"));
        true
    }

    fn mark(&self, network_at: usize, family: Family, dscp: u32) -> bool {
        self.marked.borrow_mut().push((network_at, family, dscp));
        if self.sends {
            let here = self.frame.borrow().len();
            let painted = self.written(here, |canvas| mark::paint(canvas, network_at, family, dscp));
            self.painted.borrow_mut().push(painted.expect("a header"));
        }
        self.sends
    }
}

impl Sockets for TestHost {
    fn issue(&self, _: &Segment, _: u16) -> Option<Issued> {
        self.issued
    }

    fn prove(&self, _: &Packet, otherwise: Reason) -> Proof {
        match self.proof.get() {
            Proof::Nothing if self.forwards => Proof::elsewhere(otherwise),
            proof => proof,
        }
    }

    fn forwards(&self, _: &Packet) -> bool {
        self.forwards
    }

    fn mtu(&self) -> u32 {
        self.mtu
    }
}
