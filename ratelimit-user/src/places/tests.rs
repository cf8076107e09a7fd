use super::*;

const GRACE: Duration = Duration::from_millis(250);
const RULES: PlaceRules = PlaceRules {
    own: 3,
    unproven: 2,
    first: Duration::from_secs(30),
    idle: Duration::from_secs(600),
    grace: GRACE,
};

/// A crowd with a clock that tests move.
struct World {
    places: Arc<ConnectionPlaces>,
    now_ms: u64,
}

impl World {
    fn new(rules: PlaceRules, common: Option<Arc<Common>>) -> Self {
        Self { places: ConnectionPlaces::new(rules, common), now_ms: 0 }
    }

    fn newcomer(&self) -> Room {
        let (places, entered_ms) = (Arc::clone(&self.places), self.now_ms);
        self.places.crowd().admit(entered_ms, |id| {
            Arc::new(Guest {
                id,
                places,
                entered_ms,
                busy: AtomicU32::new(0),
                is_proven: AtomicBool::new(false),
                answered_ms: AtomicU64::new(0),
                task: OnceLock::new(),
            })
        })
    }

    /// A new connection that gets a place.
    fn unproven(&self) -> Arc<Guest> {
        match self.newcomer() {
            Room::Free(guest) | Room::Made(guest) => guest,
            Room::After(wait) => panic!("no place within {wait:?}"),
        }
    }

    /// A new connection that shows its token at once.
    fn known(&self) -> Arc<Guest> {
        let guest = self.unproven();
        self.asks(&guest);
        guest
    }

    fn asks(&self, guest: &Guest) {
        guest.is_proven.store(true, Ordering::Relaxed);
        guest.answered_ms.store(self.now_ms, Ordering::Relaxed);
        self.places.crowd().knows(guest.id, self.now_ms);
    }

    fn pass(&mut self, time: Duration) {
        self.now_ms += time.as_millis() as u64;
    }

    fn look(&self) {
        self.places.crowd().let_go(self.now_ms);
    }
}

fn is_here(guest: &Guest) -> bool {
    guest.busy.load(Ordering::SeqCst) != LOST
}

#[test]
fn the_longest_idle_makes_room_for_a_newcomer() {
    let mut world = World::new(RULES, None);
    let mut known = Vec::new();
    for _ in 0..3 {
        known.push(world.known());
        world.pass(GRACE);
    }
    world.asks(&known[0]);
    world.pass(GRACE);
    world.unproven();
    assert_eq!(known.iter().map(|one| is_here(one)).collect::<Vec<_>>(), [true, false, true]);
}

#[test]
fn unproven_guests_lose_their_places_before_guests_that_are_idle_for_longer() {
    let mut world = World::new(RULES, None);
    let known = [world.known(), world.known()];
    world.pass(Duration::from_secs(20));
    let unproven = world.unproven();
    world.pass(GRACE);
    let newcomer = world.unproven();
    assert!(known.iter().all(|one| is_here(one)) && is_here(&newcomer));
    assert!(!is_here(&unproven));
}

#[test]
fn unproven_guests_have_some_of_the_places_and_never_all() {
    let mut world = World::new(PlaceRules { own: 100, ..RULES }, None);
    let newcomers: Vec<_> = (0..10)
        .map(|_| {
            world.pass(GRACE);
            world.unproven()
        })
        .collect();
    let here: Vec<bool> = newcomers.iter().map(|one| is_here(one)).collect();
    assert_eq!(here.iter().filter(|here| **here).count(), RULES.unproven, "{here:?}");
    assert_eq!(here[8..], [true, true], "the newest are here");
    world.asks(&newcomers[9]);
    assert!(matches!(world.newcomer(), Room::Free(_)), "who has shown its token is none any more");
}

#[test]
fn a_place_is_nobody_elses_for_a_moment() {
    let mut world = World::new(RULES, None);
    let first = world.unproven();
    world.pass(GRACE / 2);
    world.unproven();
    assert!(matches!(world.newcomer(), Room::After(wait) if wait == GRACE - GRACE / 2));
    world.pass(GRACE - GRACE / 2);
    assert!(matches!(world.newcomer(), Room::Made(_)));
    assert!(!is_here(&first));
}

#[test]
fn newcomers_do_not_wait_for_each_other_where_guests_are_idle_and_few_are_unproven() {
    let mut world = World::new(PlaceRules { own: 20, unproven: 16, ..RULES }, None);
    let known: Vec<_> = (0..20).map(|_| world.known()).collect();
    world.pass(GRACE);
    let newcomers = [world.unproven(), world.unproven()];
    assert!(matches!(world.newcomer(), Room::After(_)), "two of sixteen unproven ones are not few any more");
    assert_eq!(known.iter().filter(|one| is_here(one)).count(), 18);
    // A connection that asks at once makes room for the next one.
    for unproven in newcomers {
        world.asks(&unproven);
        world.known();
        assert!(is_here(&unproven), "nobody has lost a place that is young");
    }
}

#[test]
fn nobody_is_let_go_in_the_midst_of_an_answer() {
    let mut world = World::new(RULES, None);
    let known: Vec<_> = (0..3).map(|_| world.known()).collect();
    let busy: Vec<_> = known.iter().map(|guest| guest.begin().unwrap()).collect();
    world.pass(RULES.idle * 2);
    world.look();
    assert!(matches!(world.newcomer(), Room::After(_)));
    assert!(known.iter().all(|one| is_here(one)));
    drop(busy);
    // Answers use the real clock, so they were given long ago by the test's clock.
    world.pass(RULES.idle);
    world.look();
    assert!(known.iter().all(|one| !is_here(one)));
    assert!(known[0].begin().is_none(), "nothing begins where the place is lost");
}

#[test]
fn every_time_that_is_up_ends_a_connection_and_no_other() {
    let mut world = World::new(RULES, None);
    let (silent, idle, slow) = (world.unproven(), world.known(), world.known());
    world.places.crowd().holds(slow.id, 10, Some(UNFINISHED.as_millis() as u64));
    let steps =
        [(9, [true; 3]), (1, [true, true, false]), (19, [true, true, false]), (1, [false, true, false])];
    for (seconds, here) in steps {
        world.pass(Duration::from_secs(seconds));
        // Sending a little more does not start a request again.
        world.places.crowd().holds(slow.id, 20, None);
        world.look();
        assert_eq!([&silent, &idle, &slow].map(|one| is_here(one)), here, "after {} ms", world.now_ms);
    }
    world.pass(RULES.idle - Duration::from_secs(31));
    world.look();
    assert!(is_here(&idle));
    world.pass(Duration::from_secs(1));
    world.look();
    assert!(!is_here(&idle));
    assert_eq!(world.places.crowd().len(), 0);
}

#[test]
fn unfinished_requests_have_a_sum_and_the_oldest_is_let_go_for_it() {
    let mut world = World::new(PlaceRules { own: 1_000, unproven: 1_000, ..RULES }, None);
    let size = 64 * 1024;
    let many: Vec<_> = (0..=MAX_UNFINISHED / size)
        .map(|_| {
            world.pass(Duration::from_millis(1));
            let guest = world.unproven();
            guest.places.crowd().holds(guest.id, size, Some(world.now_ms));
            guest
        })
        .collect();
    assert!(!is_here(&many[0]) && many[1..].iter().all(|one| is_here(one)));
    // Finished requests do not count any more.
    for guest in &many {
        world.places.crowd().holds(guest.id, 0, None);
    }
    assert_eq!(world.places.crowd().bytes(), 0);
}

#[test]
fn the_sum_holds_where_everybody_who_holds_memory_is_being_answered_and_who_is_not_goes_first() {
    let mut world = World::new(PlaceRules { own: 1_000, unproven: 1_000, ..RULES }, None);
    let size = MAX_UNFINISHED / 4;
    let mut hold = |is_busy: bool| {
        world.pass(Duration::from_millis(1));
        let guest = world.known();
        let busy = is_busy.then(|| guest.begin().unwrap());
        world.places.crowd().holds(guest.id, size, Some(world.now_ms));
        (guest, busy)
    };
    let (first, busy) = hold(true);
    let (second, _idle) = hold(false);
    let others: Vec<_> = (0..2).map(|_| hold(true)).collect();
    let last = hold(true);
    assert!(is_here(&first), "it is being answered");
    assert!(!is_here(&second), "nothing is lost but what it has not taken");
    let more = hold(true);
    assert!(!is_here(&first), "nobody is left who is not being answered");
    assert!(others.iter().chain([&last, &more]).all(|(guest, _)| is_here(guest)));
    assert_eq!(world.places.crowd().bytes(), 4 * size);
    drop(busy);
    assert!(!is_here(&first) && first.begin().is_none(), "an answer that ends does not bring the place back");
    assert_eq!(world.places.crowd().len(), 4);
}

#[test]
fn one_that_is_being_answered_keeps_nobody_else_beyond_its_time() {
    let mut world = World::new(RULES, None);
    let (answered, slow) = (world.known(), world.known());
    let busy = answered.begin().unwrap();
    for (guest, due_ms) in [(&answered, 10), (&slow, 11)] {
        world.places.crowd().holds(guest.id, 10, Some(due_ms));
    }
    world.pass(Duration::from_secs(1));
    world.look();
    assert_eq!([&answered, &slow].map(|one| is_here(one)), [true, false]);
    drop(busy);
    world.look();
    assert!(!is_here(&answered));
}

#[test]
fn a_protocol_keeps_places_of_its_own_whatever_the_others_take() {
    let common = Common::new(4);
    let greedy = World::new(PlaceRules { unproven: 100, ..RULES }, Some(Arc::clone(&common)));
    let mut modest = World::new(PlaceRules { unproven: 100, ..RULES }, Some(Arc::clone(&common)));
    let taken: Vec<_> = (0..7).map(|_| greedy.known()).collect();
    assert!(matches!(greedy.newcomer(), Room::After(_)), "three of its own and four in common");
    let mine: Vec<_> = (0..3).map(|_| modest.known()).collect();
    assert!(matches!(modest.newcomer(), Room::After(_)));
    greedy.places.crowd().remove(taken[0].id);
    assert!(matches!(modest.newcomer(), Room::Free(_)), "what is given back is for everybody");
    modest.pass(GRACE);
    assert!(matches!(modest.newcomer(), Room::Made(_)));
    assert!(mine.iter().all(|one| is_here(one)), "the unproven one went");
}

#[tokio::test]
async fn who_loses_its_place_is_ended_and_gives_it_back_once() {
    let places = ConnectionPlaces::new(PlaceRules { own: 1, unproven: 1, ..RULES }, None);
    let (ended, wait) = tokio::sync::oneshot::channel::<()>();
    places.enter().await.host(async move {
        let _ends_with_this = ended;
        std::future::pending::<()>().await;
    });
    // The new connection gets the place after the grace time.
    let place = places.enter().await;
    assert!(wait.await.is_err());
    assert_eq!(places.crowd().len(), 1);
    drop(place);
    assert_eq!(places.crowd().len(), 0);
}

#[tokio::test]
async fn whoever_looks_after_the_places_keeps_the_deadlines() {
    let places = ConnectionPlaces::new(PlaceRules { first: Duration::from_millis(1), ..RULES }, None);
    let (ended, wait) = tokio::sync::oneshot::channel::<()>();
    let place = places.enter().await;
    let known = places.enter().await;
    known.guest().is_proven_now();
    place.host(async move {
        let _ends_with_this = ended;
        std::future::pending::<()>().await;
    });
    let looking = tokio::spawn(Arc::clone(&places).look_after());
    let ended = tokio::time::timeout(Duration::from_secs(20), wait).await;
    assert!(ended.expect("its time is up").is_err());
    assert!(is_here(known.guest()));
    looking.abort();
}
