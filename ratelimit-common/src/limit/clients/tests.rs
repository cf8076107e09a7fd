//! What is promised of known clients, for random populations.

use std::vec::Vec;

use super::{super::prefilter::split_mix::SplitMix, *};

const SECOND_Q8: u64 = 1_000_000_000 << TIME_FRAC_BITS;
const STEP_Q8: u64 = 1 << (STEP_BITS + TIME_FRAC_BITS);
const START_Q8: u64 = 77 << 50;

#[test]
fn small_numbers_are_exact() {
    for number in 0..256 {
        assert_eq!(decode(encode(number, 0, u64::MAX)), number);
        assert_eq!(decode(encode(number << 9, 9, 0)), number);
    }
    assert_eq!(decode(encode(u64::MAX >> 8, 0, 0)), decode(FLOAT_MASK), "the largest stands for more");
}

#[test]
fn rounding_is_right_on_average() {
    let mut numbers = SplitMix(1);
    for number in [1, 300, 511, 513, 5_000, 123_457, 9_999_999_999] {
        for fraction in [0, 9, 16] {
            const TIMES: u64 = 20_000;
            let sum: u64 =
                (0..TIMES).map(|_| decode(encode(number, fraction, numbers.next())) << fraction).sum();
            let mean = sum / TIMES;
            let most = (number / 500).max((1 << fraction) / 50);
            assert!(mean.abs_diff(number) <= most, "{number} / 2^{fraction}: {mean}");
        }
    }
}

#[test]
fn an_average_follows_what_is_served() {
    let mut numbers = SplitMix(2);
    for per_step in [1_u64, 7, 344, 70_000] {
        let mut client = Client::first(1, 0, 1, 0);
        for step in 1..=2_048 {
            for _ in 0..per_step.min(1_000) {
                client = client.meet(step, per_step.div_ceil(1_000), numbers.next());
            }
        }
        let average = client.average() as f64 / 256.0;
        let served = (per_step.min(1_000) * per_step.div_ceil(1_000)) as f64;
        assert!((0.85..1.1).contains(&(average / served)), "{per_step}: {average}");
    }
}

#[test]
fn an_average_falls_by_half_in_six_hours() {
    let mut client = Client(1 << TAG_SHIFT | KNOWN << HITS_SHIFT | encode(100_000, 0, 0) << AVERAGE_SHIFT);
    let before = client.average();
    assert_eq!(client.average_at(0), before);
    let half = client.average_at(356) as f64 / before as f64;
    assert!((0.49..0.51).contains(&half), "{half}");
    assert_eq!(client.average_at(20_000), 0);
    client = client.meet(356, 0, 0);
    let paused = client.average() as f64 / before as f64;
    assert!((0.49..0.51).contains(&paused), "the steps in which it was not met count: {paused}");
    for step in 357..700 {
        client = client.meet(step, 0, 0);
    }
    assert_eq!(client.average(), client.meet(700, 0, 0).average(), "a client that is met loses nothing");
}

#[test]
fn a_client_is_known_after_three_steps_of_a_day() {
    let mut client = Client::first(5, 10, 1, 0);
    for _ in 0..100 {
        client = client.meet(10, 1, 0);
    }
    assert!(!client.is_known(), "one burst is one step");
    client = client.meet(11, 1, 0);
    assert!(!client.is_known() && client.meet(12, 1, 0).is_known());
    assert!(!client.meet(11 + DAY + 1, 1, 0).is_known(), "the day is over");
    assert!(client.meet(12, 1, 0).meet(12 + 2 * DAY, 1, 0).is_known(), "it stays known");
    assert!(!client.is_free(11 + FORGOTTEN) && client.is_free(11 + FORGOTTEN + 1));
    assert!(Client::NONE.is_free(0) && !Client::NONE.is_named(0));
}

#[test]
fn steps_wrap() {
    let client = Client::first(5, STEP_MASK, 3, 0).meet(0, 1, 0).meet(1, 1, 0);
    assert!(client.is_known() && client.age(2) == 1, "{client:?}");
    let hash = 0x1234_5678 << 32;
    let steps = [0, 1, 2].map(|more| step(hash, (more * STEP_Q8).wrapping_sub(STEP_Q8)));
    assert_eq!([1, 2].map(|at| steps[at].wrapping_sub(steps[0]) & STEP_MASK), [1, 2]);
}

#[test]
fn set_and_name_of_ipv4_are_exact() {
    let mut numbers = SplitMix(3);
    for _ in 0..10_000 {
        let hash = numbers.next() >> 32 << 32;
        let name = u64::from(set_index(hash)) << 22 | tag(hash);
        assert_eq!(name << (64 - 22 - SET_BITS), hash);
    }
}

#[test]
fn a_new_client_takes_the_cheapest_place() {
    let known = |average: u64| {
        Client(1 << TAG_SHIFT | 100 << STEP_SHIFT | KNOWN << HITS_SHIFT | average << AVERAGE_SHIFT)
    };
    let candidate = Client::first(2, 100, 1, 0);
    let worth = |client: Client, age: u64| client.worth(100 + age);
    assert_eq!([worth(Client::NONE, 0), worth(candidate, 4), worth(known(9), FORGOTTEN + 1)], [0; 3]);
    assert!(0 < worth(known(0), 0) && worth(known(5), 0) < worth(known(6), 0));
    assert!(worth(known(FLOAT_MASK), 0) < worth(candidate, 3), "a candidate keeps its place for a while");
}

/// All averages together are at most what was served, for any order of clients and pauses.
#[test]
fn averages_are_at_most_what_was_served() {
    const SOURCES: usize = 500;
    let mut numbers = SplitMix(4);
    for round in 0..6_u64 {
        let mut clients = [Client::NONE; SOURCES];
        let mut average = 0.0;
        for step in 0..3_000_u64 {
            let packets = 1 + numbers.below(4_000);
            let first = numbers.below(SOURCES as u64);
            for packet in 0..packets {
                // Everybody, a few at a time, one after the other, or at random.
                let source = match round {
                    0 => packet,
                    1 => first + packet % 3,
                    2 => step,
                    3 => step / 100,
                    _ => numbers.next(),
                } as usize
                    % SOURCES;
                let now = step & STEP_MASK;
                let client = clients[source];
                clients[source] = if client.is_free(now) {
                    Client::first(source as u64, now, 1, numbers.next())
                } else {
                    client.meet(now, 1, numbers.next())
                };
            }
            average += (packets as f64 - average) / 512.0;
        }
        let sum: u64 = clients.iter().map(|client| client.average_at(3_000 & STEP_MASK)).sum();
        let of_clients = sum as f64 / 256.0;
        assert!(of_clients <= average * 1.03, "round {round}: {of_clients} of {average}");
        assert!(of_clients >= average * 0.9, "round {round}: {of_clients} of {average}");
    }
}

/// A total under a flood: newcomers take all that they may, and known clients come before them.
struct Shortage {
    now_q8: u64,
    price_q8: u64,
    end_q8: u64,
    reserve_tat_q8: u64,
    admitted: u64,
}

impl Shortage {
    fn of(rate: u64, burst: u64) -> Self {
        let price_q8 = SECOND_Q8 / rate;
        let end_q8 = reserve_price_q8(price_q8 * burst / 4, 7);
        Self { now_q8: START_Q8, price_q8, end_q8, reserve_tat_q8: START_Q8, admitted: 0 }
    }

    fn reserve(&self) -> TotalReserve {
        let debt_q8 = self.reserve_tat_q8.saturating_sub(self.now_q8);
        TotalReserve {
            debt_q8,
            end_q8: self.end_q8,
            price_q8: reserve_price_q8(self.price_q8, 7),
            is_wanted: true,
        }
    }

    fn ask(&mut self, client: &mut Sending, random: u64) -> bool {
        let reserve = self.reserve();
        let pressure = ReservePressure::NONE.and(&reserve);
        let Sending { claimed, average, met_q8, .. } = *client;
        let age = (self.now_q8 - met_q8) / STEP_Q8;
        let after = claim(claimed, (average, age), pressure, (self.now_q8, self.price_q8), random);
        let Some(after) = after else { return false };
        (client.claimed, client.met_q8) = (after, self.now_q8);
        self.reserve_tat_q8 = self.now_q8 + reserve.debt_q8 + reserve.price_q8;
        self.admitted += 1;
        true
    }
}

/// Packets of one client: when the next one is due, and how many it has sent and got.
#[derive(Clone, Default)]
struct Sending {
    average: u64,
    /// When it was served last.
    met_q8: u64,
    gap_q8: u64,
    due_q8: u64,
    claimed: u64,
    sent: u64,
    got: u64,
}

/// Clients with averages, each of which sends at a multiple of its average.
fn population(numbers: &mut SplitMix, averages: impl Iterator<Item = u64>, speed: f64) -> Vec<Sending> {
    let one = |average: u64| {
        let gap_q8 = (STEP_Q8 as f64 * 256.0 / average as f64 / speed) as u64;
        Sending { average, gap_q8, due_q8: START_Q8 + numbers.below(gap_q8), ..Sending::default() }
    };
    averages.map(one).collect()
}

/// Runs a shortage for some seconds, in steps of a millisecond.
fn run(shortage: &mut Shortage, clients: &mut [Sending], seconds: u64, numbers: &mut SplitMix) {
    let end_q8 = shortage.now_q8 + seconds * SECOND_Q8;
    while shortage.now_q8 < end_q8 {
        let first = numbers.below(clients.len() as u64) as usize;
        let (before, after) = clients.split_at_mut(first);
        for client in after.iter_mut().chain(before) {
            while client.due_q8 <= shortage.now_q8 {
                client.due_q8 += client.gap_q8;
                client.sent += 1;
                client.got += u64::from(shortage.ask(client, numbers.next()));
            }
        }
        shortage.now_q8 += SECOND_Q8 / 1_000;
    }
}

/// Averages of packets each second as the memory has them.
fn average(per_second: f64) -> u64 {
    (per_second * 256.0 * STEP_Q8 as f64 / SECOND_Q8 as f64) as u64
}

/// The promise: what a client sends up to f times its average is served, where f = min(4, 7/8 of the rate / the sum of all averages).
#[test]
fn a_client_gets_its_claim_beside_all_other_claims() {
    let mut numbers = SplitMix(5);
    for (rate, honest, others, of_others) in [
        (2_000, 20, 0, 0.0),
        (2_000, 20, 50, 10.0),
        (4_000, 200, 1_000, 0.5),
        (4_000, 100, 20_000, 0.05),
        (4_000, 50, 100, 30.0),
        (20_000, 300, 500, 25.0),
    ] {
        let averages: Vec<f64> = (0..honest).map(|_| 0.5 + numbers.below(40) as f64 / 10.0).collect();
        let sum = averages.iter().sum::<f64>() + f64::from(others) * of_others;
        let f = (0.875 * rate as f64 / sum).min(4.0);
        let mut clients = population(&mut numbers, averages.iter().map(|a| average(*a)), f * 0.9);
        // The others send far more than they may.
        clients.extend(population(&mut numbers, (0..others).map(|_| average(of_others)), 20.0));
        let mut shortage = Shortage::of(rate, rate);
        // A claim that earns less than a packet in 16 s has one saved up: those of all others come first.
        run(&mut shortage, &mut clients, 20, &mut numbers);
        for client in &mut clients {
            (client.sent, client.got) = (0, 0);
        }
        run(&mut shortage, &mut clients, 40, &mut numbers);
        let (sent, got) = clients[..honest]
            .iter()
            .fold((0, 0), |(sent, got), client| (sent + client.sent, got + client.got));
        assert!(
            got >= sent * 97 / 100,
            "{rate}, {honest}, {others} x {of_others}: {got} of {sent}, f = {f:.2}"
        );
        let most = rate * 60 * 7 / 8 + rate / 4 + 1;
        assert!(shortage.admitted <= most, "{rate}, {honest}, {others}: {} of {most}", shortage.admitted);
    }
}

/// The seconds of a step.
const STEP_SECONDS: f64 = (1_u64 << STEP_BITS) as f64 / 1e9;
/// Steps of three and a half days, in which clients are learned before an attack.
const LEARNED: u64 = 4_402;

/// One class of honest clients.
struct ClientClass {
    name: &'static str,
    count: usize,
    /// What each sends in a second, at least and at most.
    per_second: [f64; 2],
    /// Packets that it sends within a quarter of a second.
    at_once: u64,
    /// The steps before the attack in which it was there, at least and at most.
    steps: [u64; 2],
    /// Whether it is there for eight hours of a day, which the attack is in.
    by_day: bool,
}

impl ClientClass {
    const STEADY: Self = Self {
        name: "steady",
        count: 200,
        per_second: [0.1, 20.0],
        at_once: 1,
        steps: [LEARNED; 2],
        by_day: false,
    };

    const ALL: [Self; 6] = [
        Self::STEADY,
        Self { name: "by day", count: 300, per_second: [1.0; 2], by_day: true, ..Self::STEADY },
        // Ten times as many as were simulated: within minutes only one in fifteen asks.
        Self { name: "hourly", count: 10_000, per_second: [10.0 / 3_600.0; 2], at_once: 10, ..Self::STEADY },
        Self { name: "rare", count: 5_000, per_second: [0.01; 2], ..Self::STEADY },
        Self { name: "mobile", count: 200, per_second: [0.5; 2], steps: [0, 17], ..Self::STEADY },
        Self { name: "new", count: 100, per_second: [2.0; 2], steps: [105; 2], ..Self::STEADY },
    ];

    /// Those of the class that are known after they were learned, with what each sends in a second.
    fn known(&self, numbers: &mut SplitMix) -> Vec<(f64, Sending)> {
        let [least, most] = self.per_second;
        (0..self.count)
            .filter_map(|_| {
                let per_second = least * (most / least).powf(unit(numbers));
                let steps = self.steps[0] + numbers.below(self.steps[1] - self.steps[0] + 1);
                // Hours of the attack after those in the morning when it came.
                let hour = if self.by_day { 4.0 + 4.0 * unit(numbers) } else { 0.0 };
                let is_there = |ago: u64| {
                    let hours = (hour - ago as f64 * STEP_SECONDS / 3_600.0).rem_euclid(24.0);
                    !self.by_day || hours < 8.0
                };
                Some((per_second, learned(per_second, self.at_once, steps, is_there, numbers)?))
            })
            .collect()
    }
}

/// A number from 0 to 1.
fn unit(numbers: &mut SplitMix) -> f64 {
    numbers.next() as f64 / u64::MAX as f64
}

/// A client after so many steps; `None` if it is not known.
fn learned(
    per_second: f64,
    at_once: u64,
    steps: u64,
    is_there: impl Fn(u64) -> bool,
    numbers: &mut SplitMix,
) -> Option<Sending> {
    let (mut client, mut due) = (Client::NONE, unit(numbers));
    for step in (LEARNED - steps..LEARNED).filter(|step| is_there(LEARNED - step)) {
        due += per_second * STEP_SECONDS / at_once as f64;
        let packets = due as u64 * at_once;
        due = due.fract();
        client = match (packets, client) {
            (0, client) => client,
            (packets, Client::NONE) => Client::first(1, step, packets, numbers.next()),
            (packets, client) => client.meet(step, packets, numbers.next()),
        };
    }
    let met_q8 = START_Q8 - client.age(LEARNED) * STEP_Q8;
    client.is_known().then(|| Sending { average: client.average_at(LEARNED), met_q8, ..Sending::default() })
}

/// An attack with packets of known addresses, and the percentages of each class that a simulation found.
struct PreparedAttack {
    name: &'static str,
    /// Forged addresses, and what each was served in the hour before; those of the first steady clients if it was nothing.
    forged: usize,
    served_per_second: f64,
    simulated: [f64; 6],
}

/// Forged packets of known addresses in a second.
const FORGED: f64 = 60_000.0;
const ATTACK_SECONDS: u64 = 240;

impl PreparedAttack {
    /// The percentages of honest packets of each class that are served while known addresses are forged, and what all known clients are served.
    fn run(&self, numbers: &mut SplitMix) -> ([f64; 6], u64) {
        let mut classes = ClientClass::ALL.map(|class| class.known(numbers));
        let mut forged: Vec<Sending> = if self.served_per_second == 0.0 {
            classes[0].drain(..self.forged).map(|(_, client)| client).collect()
        } else {
            let hour = (3_600.0 / STEP_SECONDS) as u64;
            (0..self.forged)
                .filter_map(|_| learned(self.served_per_second, 1, hour, |_| true, numbers))
                .collect()
        };
        let rates: [f64; 6] = core::array::from_fn(|at| {
            let sum: f64 = classes[at].iter().map(|(per_second, _)| per_second).sum();
            sum / ClientClass::ALL[at].at_once as f64
        });
        let all = FORGED + rates.iter().sum::<f64>();
        let mut shortage = Shortage::of(4_000, 4_000);
        // Packets that clients send at once: class, client, packets left, and when the next one is due.
        let mut pending: Vec<(usize, usize, u64, u64)> = Vec::new();
        let end_q8 = START_Q8 + ATTACK_SECONDS * SECOND_Q8;
        while shortage.now_q8 < end_q8 {
            let mut at = unit(numbers) * all;
            let class = rates.iter().position(|rate| {
                at -= rate;
                at < 0.0
            });
            match class {
                None => {
                    let client = numbers.below(forged.len() as u64) as usize;
                    let client = &mut forged[client];
                    shortage.ask(client, numbers.next());
                }
                Some(class) => {
                    let most = ClientClass::ALL[class].per_second[1];
                    let client = loop {
                        let client = numbers.below(classes[class].len() as u64) as usize;
                        if unit(numbers) * most <= classes[class][client].0 {
                            break client;
                        }
                    };
                    pending.push((class, client, ClientClass::ALL[class].at_once, shortage.now_q8));
                }
            }
            for (class, client, left, due_q8) in &mut pending {
                if *due_q8 <= shortage.now_q8 {
                    let client = &mut classes[*class][*client].1;
                    client.sent += 1;
                    client.got += u64::from(shortage.ask(client, numbers.next()));
                    (*left, *due_q8) = (*left - 1, *due_q8 + SECOND_Q8 / 40);
                }
            }
            pending.retain(|(_, _, left, _)| *left > 0);
            shortage.now_q8 += (SECOND_Q8 as f64 / all) as u64;
        }
        let served = classes.map(|class| {
            let [sent, got] =
                class.iter().fold([0; 2], |[sent, got], (_, client)| [sent + client.sent, got + client.got]);
            100.0 * got as f64 / sent as f64
        });
        (served, shortage.admitted)
    }
}

/// The percentages are means of eight runs of a simulation in floating point, with the same populations and attackers.
#[test]
fn prepared_addresses_take_what_was_simulated() {
    let mut numbers = SplitMix(8);
    for attack in [
        PreparedAttack {
            name: "50 of others",
            forged: 50,
            served_per_second: 0.0,
            simulated: [100.0, 100.0, 97.6, 99.0, 97.7, 99.9],
        },
        PreparedAttack {
            name: "1000 prepared",
            forged: 1_000,
            served_per_second: 0.5,
            simulated: [100.0, 100.0, 86.2, 99.7, 97.3, 100.0],
        },
        PreparedAttack {
            name: "100 000 prepared",
            forged: 100_000,
            served_per_second: 0.005,
            simulated: [100.0, 100.0, 12.1, 79.5, 9.8, 78.2],
        },
    ] {
        let (served, admitted) = attack.run(&mut numbers);
        std::println!("{}: {served:.1?}", attack.name);
        for ((class, served), simulated) in ClientClass::ALL.iter().zip(served).zip(attack.simulated) {
            let name = attack.name;
            assert!(
                (served - simulated).abs() <= 3.0,
                "{name}, {}: {served:.1} %, simulated {simulated} %",
                class.name
            );
        }
        let most = 4_000 * ATTACK_SECONDS * 7 / 8 + 1_000 + 1;
        assert!(
            admitted <= most,
            "{}: an eighth is left to newcomers, but {admitted} of {most}",
            attack.name
        );
    }
}

#[test]
fn beyond_claims_all_clients_get_equal_shares() {
    let mut numbers = SplitMix(6);
    // Clients without a claim: some send little, the others all they can.
    let mut clients = population(&mut numbers, core::iter::repeat_n(average(2.0), 100), 1.0);
    clients.extend(population(&mut numbers, core::iter::repeat_n(average(2.0), 100), 50.0));
    for client in &mut clients {
        client.average = 0;
    }
    let mut shortage = Shortage::of(2_000, 2_000);
    run(&mut shortage, &mut clients, 40, &mut numbers);
    let [quiet, loud] = [&clients[..100], &clients[100..]].map(|of| {
        of.iter().fold((0, 0), |(sent, got), client: &Sending| (sent + client.sent, got + client.got))
    });
    assert!(quiet.1 >= quiet.0 * 97 / 100, "{quiet:?}");
    assert!(loud.1 > 20_000, "they get the rest: {loud:?}");
}

#[test]
fn unknown_sources_have_three_eighths_of_a_wanted_reserve() {
    let reserve = |debt_q8, is_wanted| TotalReserve { debt_q8, end_q8: 800, price_q8: 10, is_wanted };
    assert!(reserve(290, true).has_room_for_tracked() && !reserve(291, true).has_room_for_tracked());
    assert!(reserve(9_999, false).has_room_for_tracked());
    assert_eq!([290, 291, 300].map(|debt_q8| reserve(debt_q8, true).tracked_wait_q8()), [0, 1, 10]);
    let small = TotalReserve { debt_q8: 0, end_q8: 5, price_q8: 10, is_wanted: true };
    assert!(small.has_room_for_tracked(), "a reserve of less than a packet");
    assert_eq!([7, 8, 70].map(|price| reserve_price_q8(price, 7)), [8, 10, 80], "seven eighths of the rate");
    assert_eq!([1, 3].map(|parts| reserve_price_q8(300, parts)), [600, 400], "a half, and three quarters");
}

#[test]
fn a_client_has_its_turn_four_times_a_second() {
    let mut numbers = SplitMix(7);
    for _ in 0..100 {
        let hash = numbers.next() >> 32 << 32;
        let turns = (0..1_000).filter(|ms| is_unfiltered(hash, ms * 1_000_000)).count();
        assert!((10..=22).contains(&turns), "{turns} of 1000 ms");
    }
}

/// Two CPUs read the clock one after the other, and write in the other order; or another policy decides by a clock that is behind.
#[test]
fn a_clock_a_little_behind_changes_no_average() {
    let client = (0..600).fold(Client::first(7, 0, 100, 1), |client, step| client.meet(step, 100, step + 1));
    assert!(client.is_known());
    for behind in [1, 2, 16] {
        let next = client.meet(599 - behind, 1, 3);
        assert_eq!((next.average(), next.age(599), next.is_known()), (client.average(), 0, true), "{behind}");
        assert!(!client.is_free(599 - behind) && client.worth(599 - behind) == client.worth(599));
    }
}
