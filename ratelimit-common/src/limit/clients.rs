//! Known clients: who was served while no total was spent, and how much. While a total is spent, they come before sources that are not known.
//!
//! A total that is spent refuses every packet that comes too late, so a flood of forged addresses takes nearly all of it. The memory of known clients
//! has an average for each source and service: what was served while nothing was short. Under a spent total a known client has a **claim**
//! of four times its average. These come first, and shrink by one factor when together they want more than there is. What claims leave goes to known clients
//! in equal shares.
//!
//! Nothing but being served earns a claim, so all claims together come from at most what was served: **forging addresses for days buys no more precedence than the
//! packets that were admitted in those days, from however many addresses.**
//!
//! # The word of a client
//! ```text
//!   tag 22 | step 16 | hits 2 | average 12 | served 12
//! ```
//! A step is 2^36 ns (69 s), and begins at another moment for each client. `served` counts the packets of the current step, and `average` has one
//! time constant of 512 steps (9.8 h), in 1/256 packets per step. Both are floating-point numbers of 12 bits, rounded at random so that small ones move too. `hits` counts
//! the steps of a day in which the client was served: with three it is known. Eight words are one set, and one line of a cache.
//!
//! # The word of what a client has claimed
//! ```text
//!   time 24 | claimed 20 | shared 20
//! ```
//! `claimed` is the debt against the claim, as a time: a packet costs the time in which the claim earns one, and a quarter of a step may be owed.
//! `shared` is the debt against the equal share, in 1/16 packets, of which eight packets may be owed.
//!
//! # The filter
//! Two bits of a word for each known client, in 256 KiB: most packets of a flood are refused there, without a look at the table.
//!
//! # Worked numbers
//! 5 packets/s for days: the average is 344 packets per step, the claim 20 packets/s. A total of 2000/s with 20 such clients: claims fit 5 times.

use super::gcra::TIME_FRAC_BITS;

/// Sets of the memory, as a power of two.
pub const SET_BITS: u32 = 17;
/// Sets of the memory.
pub const SETS: u32 = 1 << SET_BITS;
/// Clients in one set.
pub const WAYS: usize = 8;
/// Words of the filter, as a power of two.
const FILTER_BITS: u32 = 15;
/// Words of the filter.
pub const FILTER_WORDS: usize = 1 << FILTER_BITS;
/// One in this many packets that the filter does not know is looked up in the table, so that clients come back that the filter has lost.
const UNFILTERED: u64 = 64;
/// For how long a client is looked up in its turn, as a power of two of a nanosecond: 4.2 ms.
const TURN_BITS: u32 = 22;

/// A step, in powers of two of a nanosecond.
pub const STEP_BITS: u32 = 36;
const STEP_MASK: u64 = 0xffff;
/// Steps by which a client may have been met ahead of now.
const AHEAD_STEPS: u64 = 16;
/// Steps of a day.
const DAY: u64 = 1_257;
/// Steps after which a client is forgotten: thirty days.
const FORGOTTEN: u64 = 30 * DAY;
/// Steps for which a candidate keeps its place.
const CANDIDATE_STEPS: u64 = 4;
/// The time constant of averages in steps, as a power of two.
const CONSTANT_BITS: u32 = 9;
/// A claim is this many times the average, as a power of two.
const CLAIM_BITS: u32 = 2;
/// Fraction bits of an average.
const AVERAGE_FRAC: u32 = 8;

const TAG_SHIFT: u32 = 42;
const STEP_SHIFT: u32 = 26;
const HITS_SHIFT: u32 = 24;
const AVERAGE_SHIFT: u32 = 12;
const HITS_MASK: u64 = 3;
const FLOAT_MASK: u64 = 0xfff;
/// Hits with which a client is known.
const KNOWN: u64 = 3;

const MANTISSA_BITS: u32 = 7;
const MANTISSA_MASK: u64 = (1 << MANTISSA_BITS) - 1;

/// The number of a float of 12 bits.
#[inline(always)]
pub const fn decode(float: u64) -> u64 {
    let exponent = float >> MANTISSA_BITS & 31;
    let is_normal = (exponent != 0) as u64;
    ((float & MANTISSA_MASK) | is_normal << MANTISSA_BITS) << (exponent - is_normal)
}

/// The float of 12 bits next to `number / 2^fraction`, above or below it at random, so that it is right on average. The number is below 2^56.
#[inline(always)]
pub const fn encode(number: u64, fraction: u32, random: u64) -> u64 {
    let bits = u64::BITS - number.leading_zeros();
    let dropped = bits.saturating_sub(MANTISSA_BITS + 1);
    let dropped = if dropped > fraction { dropped } else { fraction } & 63;
    let rounded = (number + (random & ((1 << dropped) - 1))) >> dropped;
    // A number that was rounded up to the next power of two has no other bits.
    let carry = (rounded >> (MANTISSA_BITS + 1)) as u32;
    let rounded = rounded >> carry;
    let exponent = (dropped + carry - fraction) as u64 + (rounded >> MANTISSA_BITS);
    if exponent > 31 { FLOAT_MASK } else { exponent << MANTISSA_BITS | rounded & MANTISSA_MASK }
}

/// What is left of an average after a number of steps without a packet, as a part of 2^16: half after 355 steps. In between a parabola is at most 0.4 % above the
/// exact curve.
#[inline(always)]
const fn decay(idle: u64) -> u64 {
    /// Octaves in a step, in 1/2^16.
    const OCTAVES_IN_STEP: u64 = 185;
    let octaves = idle * OCTAVES_IN_STEP;
    let (whole, part) = (octaves >> 16, octaves & 0xffff);
    let left = (1 << 16) - ((part * 43_267) >> 16) + ((((part * part) >> 16) * 10_499) >> 16);
    // No age has more than 185 octaves, of which 63 leave nothing.
    left >> (if whole < 63 { whole } else { 63 })
}

/// The set of a client, by the hash of source and service.
#[inline(always)]
pub const fn set_index(hash: u64) -> u32 {
    (hash >> (u64::BITS - SET_BITS)) as u32
}

/// The name of a client within its set. For IPv4, set and name together are exact.
#[inline(always)]
pub const fn tag(hash: u64) -> u64 {
    hash << SET_BITS >> TAG_SHIFT
}

/// The hash of a client by its set and name, as far as they have it.
#[cfg(not(target_arch = "bpf"))]
pub const fn hash_of(set: u32, tag: u64) -> u64 {
    (set as u64) << (u64::BITS - SET_BITS) | tag << (TAG_SHIFT - SET_BITS)
}

/// The average of a client that is served one packet each second.
#[cfg(not(target_arch = "bpf"))]
pub const AVERAGE_OF_A_PACKET_PER_SEC: f64 = ((1_u64 << (STEP_BITS + AVERAGE_FRAC)) as f64) / 1e9;

/// The word of the filter for a client.
#[inline(always)]
pub const fn filter_index(hash: u64) -> u32 {
    (hash >> (u64::BITS - FILTER_BITS)) as u32
}

/// The bits of a client in its word of the filter.
#[inline(always)]
pub const fn filter_bits(hash: u64) -> u64 {
    1 << (hash >> (u64::BITS - FILTER_BITS - 6) & 63) | 1 << (hash >> (u64::BITS - FILTER_BITS - 12) & 63)
}

/// Whether it is the turn of a client to be looked up although the filter does not have it: about four times a second.
#[inline(always)]
pub const fn is_unfiltered(hash: u64, now_ns: u64) -> bool {
    // The bits of the tag, because the lower ones are the same for all IPv4 clients of a service.
    ((now_ns >> TURN_BITS) ^ (hash >> 32)) & (UNFILTERED - 1) == 0
}

/// The current step of a client: steps begin at another moment for each.
#[inline(always)]
pub const fn step(hash: u64, now_q8: u64) -> u64 {
    let phase = hash >> 32;
    (now_q8 >> (STEP_BITS + TIME_FRAC_BITS - 32)).wrapping_add(phase) >> 32 & STEP_MASK
}

/// One client that was served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Client(pub u64);

impl Client {
    /// A place without a client.
    pub const NONE: Self = Self(0);

    /// A client that was served for the first time.
    #[inline(always)]
    pub const fn first(tag: u64, step: u64, packets: u64, random: u64) -> Self {
        Self(tag << TAG_SHIFT | step << STEP_SHIFT | 1 << HITS_SHIFT | encode(packets, 0, random))
    }

    /// The client as one that is known, because it has shown what cannot be forged.
    #[inline(always)]
    pub const fn known(self) -> Self {
        Self(self.0 | KNOWN << HITS_SHIFT)
    }

    /// Whether the place is free, or has a client that was not served for thirty days.
    #[inline(always)]
    pub const fn is_free(self, step: u64) -> bool {
        self.hits() == 0 || self.age(step) > FORGOTTEN
    }

    /// Whether this is the client of a name. A free place is no client.
    #[inline(always)]
    pub const fn is_named(self, tag: u64) -> bool {
        self.0 >> TAG_SHIFT == tag && self.hits() != 0
    }

    /// Whether the client was served in three steps of a day.
    #[inline(always)]
    pub const fn is_known(self) -> bool {
        self.hits() == KNOWN
    }

    /// The name of the client within its set.
    #[inline(always)]
    pub const fn tag(self) -> u64 {
        self.0 >> TAG_SHIFT
    }

    const fn hits(self) -> u64 {
        self.0 >> HITS_SHIFT & HITS_MASK
    }

    /// Steps since the client was last met; 0 if that was by a clock that is a little ahead of this one.
    #[inline(always)]
    pub const fn age(self, step: u64) -> u64 {
        let age = step.wrapping_sub(self.0 >> STEP_SHIFT) & STEP_MASK;
        age * is_at_most(age, STEP_MASK - AHEAD_STEPS)
    }

    /// The average in 1/256 packets per step, when the client was last served.
    #[inline(always)]
    pub const fn average(self) -> u64 {
        decode(self.0 >> AVERAGE_SHIFT & FLOAT_MASK)
    }

    /// The average in 1/256 packets per step at a step.
    #[inline(always)]
    pub const fn average_at(self, step: u64) -> u64 {
        match self.age(step) {
            0 => self.average(),
            age => (self.moved() * decay(age - 1)) >> (16 + CONSTANT_BITS),
        }
    }

    /// The average after the step in which the client was last served, in fractions of the time constant.
    #[inline(always)]
    const fn moved(self) -> u64 {
        self.average() * ((1 << CONSTANT_BITS) - 1) + (self.served() << AVERAGE_FRAC)
    }

    #[inline(always)]
    const fn served(self) -> u64 {
        decode(self.0 & FLOAT_MASK)
    }

    /// What is remembered of a client that is met: it was served so many packets, or none while nothing is learned. Then its average neither rises nor falls, except for the steps
    /// in which it was not met.
    #[inline(always)]
    pub const fn meet(self, step: u64, packets: u64, random: u64) -> Self {
        let (age, served) = (self.age(step), self.served());
        if age == 0 {
            return Self(self.0 & !FLOAT_MASK | encode(served + packets, 0, random));
        }
        let learns = (packets != 0) as u64;
        // The average moves by a part of the finished step, and falls for the steps without a packet.
        let kept = self.average() * (1 - ((learns != 0) | (served != 0)) as u64);
        let average = encode(((self.moved() + kept) * decay(age - 1)) >> 16, CONSTANT_BITS, random);
        let expired = (!self.is_known() & (age > DAY)) as u64 & learns;
        let hits = self.hits() * (1 - expired) + learns;
        let hits = hits - (hits >> 2);
        let name = self.0 >> TAG_SHIFT << TAG_SHIFT | step << STEP_SHIFT;
        Self(
            name | hits << HITS_SHIFT | average << AVERAGE_SHIFT | encode(packets, 0, random.rotate_left(32)),
        )
    }

    /// What the place of a client is worth: a new client takes the cheapest place of a set, but that of a known client only if no other candidate is in the set.
    /// So candidates share one place in eight, and never push out more than the weakest of eight known clients.
    #[inline(always)]
    pub const fn worth(self, step: u64) -> u64 {
        if self.is_known() & !self.is_free(step) {
            // Floats are in the order of their numbers.
            WORTH_OF_KNOWN + (self.0 >> AVERAGE_SHIFT & FLOAT_MASK)
        } else if self.is_free(step) | (self.age(step) >= CANDIDATE_STEPS) {
            0
        } else {
            WORTH_OF_CANDIDATE
        }
    }
}

/// The worth of a known client's place, besides its average.
pub const WORTH_OF_KNOWN: u64 = 1;
/// The worth of a place with a candidate that was served a moment ago: it is taken from none.
pub const WORTH_OF_CANDIDATE: u64 = 1 << 16;

/// Fraction bits of a share's debt: sixteenths of a packet.
const SHARE_FRAC: u32 = 4;
/// Packets that a client may owe of its equal share.
const SHARE_PACKETS: u64 = 8;
/// Bits of a debt.
const DEBT_BITS: u32 = 20;
const DEBT_MASK: u64 = (1 << DEBT_BITS) - 1;
/// The unit of the time in powers of two of a nanosecond (4.2 ms), and of the debt against a claim (16 us).
const TIME_BITS: u32 = 22;
const CLAIM_UNIT_BITS: u32 = 14;
const TIME_MASK: u64 = (1 << 24) - 1;
/// A time ahead of now by less than this was written by a CPU whose clock is ahead.
const AHEAD: u64 = 1 << 10;
/// What may be owed of a claim: a quarter of a step.
const CLAIM_ROOM: u64 = DEBT_MASK;

/// How often a rate is halved from the beginning of a range of debt to its end.
const OCTAVES: u64 = 12;
const OCTAVE_BITS: u32 = 8;
/// The highest pressure, in 1/256 octaves.
pub const HARDEST: u64 = OCTAVES << OCTAVE_BITS;

/// 1 if a number is at most another one, otherwise 0; both are below 2^63. Without a branch, which the verifier would follow.
#[inline(always)]
const fn is_at_most(number: u64, most: u64) -> u64 {
    most.wrapping_sub(number) >> 63 ^ 1
}

/// The smaller of two numbers below 2^63, without a branch.
#[inline(always)]
const fn least(one: u64, other: u64) -> u64 {
    let mask = is_at_most(one, other).wrapping_neg();
    one & mask | other & !mask
}

/// The part of a total that is for known clients, in the view of one packet: debts in 1/256 ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TotalReserve {
    /// What known clients owe.
    pub debt_q8: u64,
    /// The most that they may owe.
    pub end_q8: u64,
    /// What the packet costs.
    pub price_q8: u64,
    /// Whether a known client has asked for a part lately.
    pub is_wanted: bool,
}

/// How long a reserve counts as wanted after a known client asked for a part: a minute, in 1/256 ns.
pub const WANTED_Q8: u64 = 60_000_000_000 << TIME_FRAC_BITS;

/// The price of a packet in the reserve, where known clients may have so many parts of the rate for one of newcomers.
#[inline(always)]
pub const fn reserve_price_q8(price_q8: u64, known_parts: u64) -> u64 {
    let parts = known_parts | (known_parts == 0) as u64;
    price_q8 + price_q8.div_ceil(parts)
}

/// The parts of a reserve's room that parties may fill, in eighths.
const TRACKED_EIGHTHS: u64 = 3;
const SHARED_EIGHTHS: u64 = 6;

impl TotalReserve {
    /// 1 if a party may fill the reserve with the packet up to so many eighths, otherwise 0.
    #[inline(always)]
    const fn room(&self, eighths: u64) -> u64 {
        // A reserve of a few packets has room for one, whatever its parts; the total itself is exact.
        is_at_most(self.debt_q8, 0) | is_at_most(self.debt_q8 + self.price_q8, self.end_q8 / 8 * eighths)
    }

    /// 1 if there is room for a source that has an entry and is not known: all that the total has, unless known clients want it.
    #[inline(always)]
    const fn room_for_tracked(&self) -> u64 {
        self.is_wanted as u64 ^ 1 | self.room(TRACKED_EIGHTHS)
    }

    /// Whether there is room for a source that has an entry and is not known.
    #[inline(always)]
    pub const fn has_room_for_tracked(&self) -> bool {
        self.room_for_tracked() != 0
    }

    /// How long the debt takes to fall until there is room for a source that has an entry and is not known, in 1/256 ns.
    #[inline(always)]
    pub const fn tracked_wait_q8(&self) -> u64 {
        (self.debt_q8 + self.price_q8).saturating_sub(self.end_q8 / 8 * TRACKED_EIGHTHS)
    }

    /// How hard a range of a quarter that ends at so many eighths presses, in 1/256 octaves.
    #[inline(always)]
    const fn pressure(&self, eighths: u64) -> u64 {
        let from_q8 = self.end_q8 / 8 * (eighths - 2);
        // Coarser, so that the product fits.
        let way = (self.debt_q8.wrapping_sub(from_q8) * is_at_most(from_q8, self.debt_q8)) >> 12;
        let pressure = way * HARDEST / ((self.end_q8 >> 14) | 1);
        least(pressure, HARDEST)
    }
}

/// How hard the reserves of all totals that a packet needs press, and for whom they have room: `claims 16 | shares 16 | bits`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct ReservePressure(pub u64);

const CLAIM_FITS: u64 = 1;
const SHARE_FITS: u64 = 2;
const TRACKED_FITS: u64 = 4;
const FITS: u64 = CLAIM_FITS | SHARE_FITS | TRACKED_FITS;
const AT_SERVICE_BIT: u32 = 3;
const AT_HOST_BIT: u32 = 4;
const SHARES_SHIFT: u32 = 16;
const CLAIMS_SHIFT: u32 = 32;
const PRESSURE_MASK: u64 = 0xffff;

impl ReservePressure {
    /// Without any reserve.
    pub const NONE: Self = Self(FITS);
    /// Of a packet that may have a part of the reserve of its service.
    pub const PRECEDES_AT_SERVICE: Self = Self(FITS | 1 << AT_SERVICE_BIT);
    /// Of a packet that may have a part of the reserves of its service and of the host.
    pub const PRECEDES: Self = Self(FITS | 1 << AT_SERVICE_BIT | 1 << AT_HOST_BIT);

    /// The pressure of one more reserve.
    #[inline(always)]
    pub const fn and(self, reserve: &TotalReserve) -> Self {
        let (claims, shares) = (reserve.pressure(8), reserve.pressure(SHARED_EIGHTHS));
        let fits = (reserve.room(8) * CLAIM_FITS)
            | (reserve.room(SHARED_EIGHTHS) * SHARE_FITS)
            | (reserve.room_for_tracked() * TRACKED_FITS);
        let claims = claims + self.claims() - least(claims, self.claims());
        let shares = shares + self.shares() - least(shares, self.shares());
        Self(claims << CLAIMS_SHIFT | shares << SHARES_SHIFT | self.0 & fits)
    }

    /// How often claims are halved, in 1/256 octaves.
    #[inline(always)]
    const fn claims(self) -> u64 {
        self.0 >> CLAIMS_SHIFT & PRESSURE_MASK
    }

    /// How often shares are halved, in 1/256 octaves.
    #[inline(always)]
    const fn shares(self) -> u64 {
        self.0 >> SHARES_SHIFT & PRESSURE_MASK
    }

    /// Whether there is room for a source that has an entry and is not known.
    #[inline(always)]
    pub const fn has_room_for_tracked(self) -> bool {
        self.0 & TRACKED_FITS != 0
    }

    /// 1 if the packet may have a part of the reserve of its service, otherwise 0.
    #[inline(always)]
    pub const fn precedes_at_service(self) -> u64 {
        self.0 >> AT_SERVICE_BIT & 1
    }

    /// 1 if the packet may have a part of the reserve of the host, otherwise 0.
    #[inline(always)]
    pub const fn precedes_at_host(self) -> u64 {
        self.0 >> AT_HOST_BIT & 1
    }
}

/// A number that is halved with every octave of pressure, linear in between.
#[inline(always)]
const fn pressed(number: u64, pressure: u64) -> u64 {
    let whole = number >> (pressure >> OCTAVE_BITS & 63);
    whole - ((whole * (pressure & ((1 << OCTAVE_BITS) - 1))) >> (OCTAVE_BITS + 1))
}

/// The time in which a claim earns one packet, in units of the debt against it; `None` without a claim.
#[inline(always)]
const fn gap(average: u64, random: u64) -> u64 {
    // Steps have 2^36 ns, units 2^14, and averages are in 1/256 packets.
    const UNITS: u64 = 1 << (STEP_BITS - CLAIM_UNIT_BITS + AVERAGE_FRAC - CLAIM_BITS);
    if average == 0 {
        return u64::MAX >> 8;
    }
    // Rounded at random: the packets of a large claim are closer together than a unit.
    ((UNITS << 8) / average + (random & 0xff)) >> 8
}

/// Evaluates a packet of a known client: returns the word of what it has claimed, or `None` if the packet is beyond claim and share. `age` is the
/// number of steps since the client was met, and `rate_q8` the time in which the total earns one packet.
#[inline(always)]
pub const fn claim(
    claimed: u64,
    (average, age): (u64, u64),
    pressure: ReservePressure,
    (now_q8, rate_q8): (u64, u64),
    random: u64,
) -> Option<u64> {
    let now = now_q8 >> (TIME_BITS + TIME_FRAC_BITS) & TIME_MASK;
    let since = now.wrapping_sub(claimed >> (2 * DEBT_BITS)) & TIME_MASK;
    let since = if since > TIME_MASK - AHEAD { 0 } else { since };
    // A client that has never claimed anything has not saved up since the clock began.
    let since = least(since, (age + 1) << (STEP_BITS - TIME_BITS));
    let earned = pressed(since << (TIME_BITS - CLAIM_UNIT_BITS), pressure.claims());
    let debt = (claimed >> DEBT_BITS & DEBT_MASK).saturating_sub(earned);
    let gap = gap(average, random);
    let room = pressed(CLAIM_ROOM, pressure.claims());
    // A claim that earns less than a packet in its room goes by the time since the last one.
    let claims = pressure.0 & CLAIM_FITS != 0 && if gap <= room { debt + gap <= room } else { earned >= gap };
    let rate_q8 = if rate_q8 == 0 { 1 } else { rate_q8 };
    let paid = (since << (TIME_BITS + TIME_FRAC_BITS + SHARE_FRAC)) / rate_q8;
    let owed = (claimed & DEBT_MASK).saturating_sub(pressed(paid, pressure.shares()));
    let charge = 1 << SHARE_FRAC;
    let shares = pressure.0 & SHARE_FITS != 0
        && (pressure.shares() == 0 || owed + charge <= SHARE_PACKETS << SHARE_FRAC);
    if !claims && !shares {
        return None;
    }
    let debt = if claims { debt + gap } else { debt };
    let debt = if debt < DEBT_MASK { debt } else { DEBT_MASK };
    let owed = if claims || pressure.shares() == 0 { owed } else { owed + charge };
    Some(now << (2 * DEBT_BITS) | debt << DEBT_BITS | owed)
}

#[cfg(not(target_arch = "bpf"))]
mod kept;
#[cfg(test)]
mod tests;

#[cfg(not(target_arch = "bpf"))]
pub use kept::{MOST_SECONDS, SERVICE_NUMBERS, STEP_NS, owed_percent, service_number, steps_in_ms};
