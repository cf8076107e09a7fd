//! What can happen to a host, and in which order a seed lets it happen.

use std::{fmt, str::FromStr};

macro_rules! events {
    ($( $(#[$attr:meta])* $variant:ident = $name:literal, $cost:ident; )+) => {
        /// One thing that happens while packets arrive.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Event {
            $( $(#[$attr])* $variant, )+
        }

        impl Event {
            /// Every event there is.
            pub const ALL: &'static [Self] = &[$( Self::$variant, )+];

            /// As it is logged and chosen.
            pub const fn name(self) -> &'static str {
                match self { $( Self::$variant => $name, )+ }
            }

            /// What it may cost a sender that is within every limit.
            pub const fn cost(self) -> HonestCost {
                match self { $( Self::$variant => HonestCost::$cost, )+ }
            }
        }
    };
}

/// What an event may cost a sender that is within every limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HonestCost {
    /// No packet may be lost.
    Nothing,
    /// The burst of a limit may be lost once: maps of another layout begin spent (decision 36).
    Burst,
    /// What is sent until the wire is whole again; from then on, not one packet.
    Wire,
}

events! {
    /// The daemon is killed without warning and starts again.
    Kill = "kill", Nothing;
    /// The daemon is asked to stop and starts again.
    Stop = "stop", Nothing;
    /// Daemons of any build are killed in the middle of their start.
    KillStart = "kill-start", Burst;
    /// A second daemon wants the same pins.
    SecondDaemon = "second-daemon", Nothing;
    /// Another policy file is read.
    Reload = "reload", Nothing;
    /// A policy file with a mistake is read.
    BrokenPolicy = "broken-policy", Nothing;
    /// A policy is applied, and nobody confirms it before the daemon is killed.
    Unconfirmed = "unconfirmed", Nothing;
    /// A limit is set while packets arrive.
    SetLimit = "set-limit", Nothing;
    /// Hundreds of blocks come and go.
    Blocks = "blocks", Nothing;
    /// Addresses that were served before are forged beside a known client.
    Pollution = "pollution", Nothing;
    /// The table of sources gets another size.
    TableSize = "table-size", Burst;
    /// A build with maps of another layout takes over, and this one takes over from it.
    OtherBuild = "other-build", Burst;
    /// Another build with maps of this layout takes over, and this one takes over from it.
    SameLayout = "same-layout", Nothing;
    /// The maps that a daemon finds are of another layout.
    OtherLayout = "other-layout", Burst;
    /// The interface goes down and up.
    LinkDown = "link-down", Wire;
    /// The interface is deleted and made again.
    LinkReplaced = "link-replaced", Wire;
    /// The second interface is deleted and made again.
    SecondLink = "second-link", Wire;
    /// The BPF file system is unmounted and mounted again, and the daemon is killed after that.
    Remount = "remount", Nothing;
    /// The store crashes and comes back empty.
    StoreCrash = "store-crash", Nothing;
    /// The store stands still for a while.
    StorePause = "store-pause", Nothing;
    /// The store's replica is promoted.
    Failover = "failover", Nothing;
    /// The store is emptied.
    Flush = "flush", Nothing;
    /// The daemon of the other host is killed.
    KillPeer = "kill-peer", Nothing;
    /// The disk with the state is full, and the daemon is killed meanwhile.
    DiskFull = "disk-full", Nothing;
    /// A start finds too little memory for its maps.
    NoMemory = "no-memory", Nothing;
    /// A start may open few files.
    FewFiles = "few-files", Nothing;
    /// The wall clock of the daemons goes forward.
    ClockForward = "clock-forward", Nothing;
    /// The wall clock of the daemons goes back.
    ClockBack = "clock-back", Nothing;
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Event {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let known = Self::ALL.iter().find(|event| event.name() == name).copied();
        known.ok_or_else(|| {
            let names: Vec<&str> = Self::ALL.iter().map(|event| event.name()).collect();
            format!("{name:?} is no event; there are {}", names.join(", "))
        })
    }
}

/// Events without an end. All of them come before one comes again.
#[derive(Debug)]
pub struct Deck {
    random: fastrand::Rng,
    from: Vec<Event>,
    left: Vec<Event>,
}

impl Deck {
    /// A deck of these events; of all if none is named.
    pub fn new(seed: u64, only: &[Event]) -> Self {
        let from = if only.is_empty() { Event::ALL } else { only };
        Self { random: fastrand::Rng::with_seed(seed), from: from.to_vec(), left: Vec::new() }
    }

    /// How many kinds of events there are in it: so many draws have each of them.
    pub const fn kinds(&self) -> usize {
        self.from.len()
    }

    /// Draws the next event.
    pub fn draw(&mut self) -> Event {
        loop {
            if let Some(event) = self.left.pop() {
                return event;
            }
            self.left.clone_from(&self.from);
            self.random.shuffle(&mut self.left);
        }
    }

    /// A number from a range, from the seed too.
    pub fn below(&mut self, end: u64) -> u64 {
        self.random.u64(..end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_fixes_the_order_and_every_event_comes_before_one_comes_again() {
        let order = |seed| {
            let mut deck = Deck::new(seed, &[]);
            (0..2 * Event::ALL.len()).map(|_| deck.draw().name()).collect::<Vec<_>>()
        };
        assert_eq!(order(7), order(7));
        assert_ne!(order(7), order(8));
        let mut first = order(7)[..Event::ALL.len()].to_vec();
        first.sort_unstable();
        first.dedup();
        assert_eq!(first.len(), Event::ALL.len());
    }

    #[test]
    fn a_wrong_name_is_answered_with_all_there_are() {
        assert_eq!("kill".parse::<Event>(), Ok(Event::Kill));
        assert!("kil".parse::<Event>().unwrap_err().contains("kill-start"));
    }
}
