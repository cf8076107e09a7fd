//! How each event is made to happen.

use std::{
    fs,
    panic::{AssertUnwindSafe, catch_unwind},
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use super::{
    Event,
    policy::{self, FORGED_ADDRESSES, FORGED_WITHIN, KNOWN_CLIENT, LIMITS, OF_BOTH_HOSTS, STREAMS, Variant},
    site::{SECOND_V4, Site},
    world::World,
};
use crate::{
    cgroup::MemoryCap,
    daemon::binary,
    netns::{EDGE, run},
    redis::wait_for,
    service::with_open_files,
    traffic::PORT,
};

/// Too little for the maps, enough for a process.
const LITTLE_MEMORY: u64 = 24 << 20;
/// Blocks that come and go.
const BLOCKS: usize = 200;
/// The reason of a block that is to fill the last page of a file, how many of them do, and what is said of the one that does not fit.
const FULL: &str = "on a disk that is full, so that this is not written down";
const MOST_LINES: usize = 60;
const NOT_ON_DISK: &str = "NOT ON DISK";
/// Looks at who is the master, 50 ms apart: in a row until it is believed, and at most.
const ALONE: usize = 40;
const MOST_LOOKS: usize = 600;
/// How the log of a Sentinel says that it does nothing for a second, because its own timer was late, and that a failover came to nothing.
const GIVEN_UP: [&str; 2] = ["+tilt", "-failover-abort"];
/// Above every layout that a build has.
const OTHER_LAYOUT: u32 = 1_000_000;

impl World {
    pub(super) fn happen(&mut self, event: Event) -> Result<(), String> {
        match event {
            Event::Kill => self.again(Site::kill_is_done),
            Event::Stop => self.again(Site::stop),
            Event::KillStart => self.kill_start(),
            Event::SecondDaemon => self.second_daemon(),
            Event::Reload => self.change_policy(),
            Event::BrokenPolicy => self.broken_policy(),
            Event::Unconfirmed => self.unconfirmed(),
            Event::SetLimit => self.set_limit(),
            Event::Blocks => self.blocks(),
            Event::Pollution => self.pollution(),
            Event::TableSize => self.table_size(),
            Event::OtherBuild => self.other_builds(false),
            Event::SameLayout => self.other_builds(true),
            Event::OtherLayout => self.other_layout(),
            Event::LinkDown => self.link_down(),
            Event::LinkReplaced => self.link_replaced(),
            Event::SecondLink => self.second_link(),
            Event::Remount => self.remount(),
            Event::StoreCrash => self.store_crash(),
            Event::StorePause => self.store_pause(),
            Event::Failover => self.failover(),
            Event::Flush => self.flush(),
            Event::KillPeer => {
                self.there.kill();
                self.nap(1_000);
                self.there.start(0)
            }
            Event::DiskFull => self.disk_full(),
            Event::NoMemory => self.no_memory(),
            Event::FewFiles => self.few_files(),
            Event::ClockForward => self.step_clock(3_600),
            Event::ClockBack => self.step_clock(-7_200),
        }
    }

    pub(super) fn nap(&mut self, most_ms: u64) {
        let ms = self.deck.below(most_ms);
        thread::sleep(Duration::from_millis(ms));
    }

    /// The daemon ends in some way and another one of the same build starts.
    fn again(&mut self, end: fn(&mut Site) -> Result<(), String>) -> Result<(), String> {
        end(&mut self.here)?;
        self.nap(800);
        self.here.start(0)
    }

    fn kill_start(&mut self) -> Result<(), String> {
        self.here.kill();
        for _ in 0..1 + self.deck.below(3) {
            let build = self.deck.below(self.plan.builds.len() as u64) as usize;
            let starting = self.here.spawn(self.here.command(build), build);
            self.nap(1_200);
            drop(starting);
            if self.deck.below(4) == 0 {
                self.rename_layout()?;
            }
            self.packet_counters.find_counters(&self.here.edge.pin());
        }
        self.here.start(0)
    }

    fn second_daemon(&mut self) -> Result<(), String> {
        match self.here.try_start(self.here.command(0), 0) {
            Ok(_) => Err("a second daemon started on the same pins".to_owned()),
            Err(_) => self.here.order(&["status"]),
        }
    }

    fn other_variant(&mut self) -> Variant {
        let coin = |world: &mut Self| world.deck.below(2) == 0;
        Variant {
            prefilter: coin(self),
            service: coin(self),
            rate: if coin(self) { 400 } else { 300 },
            ..self.variant
        }
    }

    fn change_policy(&mut self) -> Result<(), String> {
        for _ in 0..3 {
            self.variant = self.other_variant();
            self.write_policies();
            self.here.reload();
            self.nap(400);
        }
        self.here.order(&["status"])
    }

    fn broken_policy(&mut self) -> Result<(), String> {
        self.here.edge.write_policy("[source]\nlimits = [\"4000 packets/fortnight\"]\n");
        self.here.reload();
        self.nap(500);
        let refused = self.here.try_start(self.here.command(0), 0).is_err();
        self.write_policies();
        self.here.reload();
        if refused { self.here.order(&["status"]) } else { Err("a broken policy was taken".to_owned()) }
    }

    fn unconfirmed(&mut self) -> Result<(), String> {
        let file = self.here.edge.dir().join("next.toml");
        let next = Variant { rate: if self.variant.rate == 400 { 300 } else { 400 }, ..self.variant };
        fs::write(&file, policy::text(&next, 0, &self.store.url())).map_err(|error| error.to_string())?;
        self.here.order(&["apply", &file.display().to_string(), "--confirm", "30s"])?;
        self.nap(500);
        self.again(Site::kill_is_done)
    }

    fn set_limit(&mut self) -> Result<(), String> {
        for rate in [250, 400, self.variant.rate] {
            self.here.order(&[
                "limit",
                "set",
                "source.packets",
                &format!("{rate} packets/s burst {rate}"),
            ])?;
            self.nap(300);
        }
        Ok(())
    }

    fn blocks(&mut self) -> Result<(), String> {
        for verb in ["add", "del"] {
            for number in 0..BLOCKS / 10 {
                self.here.order(&["block", verb, &format!("198.51.{number}.0/24")])?;
            }
        }
        Ok(())
    }

    /// An attacker forges addresses that the service has served before. The known client is served as before, and the memory has nothing new.
    fn pollution(&mut self) -> Result<(), String> {
        let file = self.here.edge.dir().join("clients.txt");
        fs::write(&file, policy::known_clients()).map_err(|error| error.to_string())?;
        self.here.order(&["known", "import", &file.display().to_string()])?;
        let client = STREAMS.iter().position(|stream| stream.name == KNOWN_CLIENT).expect("a stream");
        let counts = |world: &Self| {
            let sent = world.senders[client].sent();
            world.watch.wait();
            [sent, world.watch.seen().arrived[client]]
        };
        let mut forger = self.here.edge.wire.in_net(binary("traffic"));
        let to = format!("{SECOND_V4}:{PORT}");
        forger.args(["forge", "--kind", "udp", "--within", FORGED_WITHIN, "--to", &to]);
        forger.args(["--pps", "5000", "--for", "5"]).stdout(Stdio::null());
        let mut forger = forger.spawn().map_err(|error| error.to_string())?;
        // Each of them may have saved up packets of its claim.
        thread::sleep(Duration::from_secs(2));
        let before = counts(self);
        thread::sleep(Duration::from_secs(2));
        let after = counts(self);
        forger.wait().map_err(|error| error.to_string())?;
        let [sent, arrived] = [0, 1].map(|at| after[at] - before[at]);
        self.say(&format!("  of {sent} packets of a known client {arrived} arrived"));
        if arrived * 100 < sent * 95 {
            return Err(format!("of {sent} packets of a known client {arrived} arrived"));
        }
        let shown = self.here.cli(&["known", "show", "--output", "json"]);
        let shown: serde_json::Value =
            serde_json::from_slice(&shown.stdout).map_err(|error| error.to_string())?;
        let most = u64::from(FORGED_ADDRESSES) + STREAMS.len() as u64;
        match [&shown["clients"], &shown["in_filter"]].map(serde_json::Value::as_u64) {
            [Some(known), Some(in_filter)] if known <= most && in_filter <= most => Ok(()),
            _ => Err(format!("at most {most} clients are known, and the memory has {shown}")),
        }
    }

    fn table_size(&mut self) -> Result<(), String> {
        self.variant.table_entries = if self.variant.table_entries == 16_384 { 32_768 } else { 16_384 };
        self.write_policies();
        let end = if self.deck.below(2) == 0 { Site::kill_is_done } else { Site::stop };
        self.again(end)
    }

    /// Each of the other builds with maps of this layout in turn, or each with maps of another layout; and this one again.
    fn other_builds(&mut self, same_layout: bool) -> Result<(), String> {
        let others =
            (1..self.plan.builds.len()).filter(|build| self.plan.builds[*build].same_layout == same_layout);
        for build in others.chain([0]).collect::<Vec<_>>() {
            self.say(&format!("  to {}", self.plan.builds[build].name));
            self.end_somehow()?;
            self.nap(300);
            self.here.start(build)?;
            self.packet_counters.find_counters(&self.here.edge.pin());
            self.nap(1_500);
        }
        Ok(())
    }

    /// The maps are those of another layout when a daemon finds them, and once more when it has moved.
    fn other_layout(&mut self) -> Result<(), String> {
        for _ in 0..2 {
            self.end_somehow()?;
            self.rename_layout()?;
            self.nap(300);
            self.here.start(0)?;
            self.packet_counters.find_counters(&self.here.edge.pin());
            self.nap(500);
        }
        Ok(())
    }

    /// Makes the maps look as if they had another layout, while no daemon runs.
    fn rename_layout(&mut self) -> Result<(), String> {
        self.packet_counters.find_counters(&self.here.edge.pin());
        self.layouts += 1;
        self.here.edge.rename_layouts(OTHER_LAYOUT + self.layouts).map_err(|error| error.to_string())
    }

    fn end_somehow(&mut self) -> Result<(), String> {
        match self.deck.below(2) {
            0 => self.here.kill_is_done(),
            _ => self.here.stop(),
        }
    }

    fn remount(&mut self) -> Result<(), String> {
        let mount = self.here.edge.pin().parent().expect("a mount point").to_owned();
        run(Command::new("umount").arg("-l").arg(&mount));
        self.nap(1_500);
        run(Command::new("mount").args(["-t", "bpf", "bpf"]).arg(&mount));
        // The daemon looks every second.
        let pin = self.here.edge.pin();
        wait_for("pins in the new file system", || pin.join("links").join(EDGE).exists().then_some(()));
        self.nap(500);
        self.again(Site::kill_is_done)
    }

    fn store_crash(&mut self) -> Result<(), String> {
        let master = self.store.master();
        self.store.servers[master].kill();
        self.nap(400);
        self.store.servers[master].start();
        self.wait_for_one_store()
    }

    fn store_pause(&mut self) -> Result<(), String> {
        let master = self.store.master();
        self.store.servers[master].pause();
        self.nap(2_500);
        self.store.servers[master].resume();
        self.wait_for_one_store()
    }

    /// Waits until one server is the master for a while. Sentinels that have promoted the other one leave the old one as it is for eight
    /// seconds, and hosts that hear of the two at different times have two stores: outside of the bound (docs/cluster.md, "Two stores at
    /// once"), so the bound of both hosts begins anew.
    fn wait_for_one_store(&mut self) -> Result<(), String> {
        let (mut alone, mut two) = (0, 0);
        for _ in 0..MOST_LOOKS {
            let masters = self.store.servers.iter().filter(|server| server.info("role") == "master").count();
            (alone, two) = (if masters == 1 { alone + 1 } else { 0 }, two + usize::from(masters > 1));
            if alone == ALONE {
                break;
            }
            thread::sleep(Duration::from_millis(50));
        }
        if two > 0 {
            self.two_stores += 1;
            self.say("  there were two stores at once");
            self.watch.begin_again(OF_BOTH_HOSTS, &LIMITS);
        }
        if alone == ALONE { Ok(()) } else { Err("there is not one store but two".to_owned()) }
    }

    fn failover(&mut self) -> Result<(), String> {
        let old = self.store.master();
        let before = self.given_up();
        let failed_over = catch_unwind(AssertUnwindSafe(|| self.store.fail_over()));
        // Whatever became of it: the next event needs two servers.
        self.store.servers[old].start();
        let Ok(new) = failed_over else {
            let lines = self.given_up() - before;
            if lines == 0 {
                return Err("the Sentinels made no other server the master".to_owned());
            }
            let words = GIVEN_UP.join(" or ");
            self.say(&format!(
                "  the Sentinels made no other server the master: {lines} lines of {words} in their logs"
            ));
            self.blame("failovers that the Sentinels gave up", 1);
            return self.wait_for_one_store();
        };
        let old = &self.store.servers[1 - new];
        wait_for("an old master that follows", || (old.info("role") == "slave").then_some(()));
        Ok(())
    }

    /// How often the Sentinels have logged that they gave up a failover, or that the machine was too slow for them.
    fn given_up(&self) -> usize {
        let logs = self.store.sentinels.iter().map(|sentinel| fs::read_to_string(sentinel.dir().join("log")));
        let is_one = |line: &&str| GIVEN_UP.iter().any(|word| line.contains(word));
        logs.flatten().map(|log| log.lines().filter(is_one).count()).sum()
    }

    fn flush(&mut self) -> Result<(), String> {
        self.store.servers[self.store.master()].ask(&["FLUSHALL"]);
        Ok(())
    }

    /// What the disk does not take is said, holds, and does not keep a daemon from starting.
    fn disk_full(&mut self) -> Result<(), String> {
        let filler = self.here.fill_disk();
        let ended = self.on_a_full_disk();
        fs::remove_file(filler).map_err(|error| error.to_string())?;
        ended?;
        self.here.order(&["block", "add", "198.51.100.78"])
    }

    fn on_a_full_disk(&mut self) -> Result<(), String> {
        // The last page of the journal has room for some lines yet.
        let add =
            |number| self.here.cli(&["block", "add", &format!("198.51.100.{number}"), "--reason", FULL]);
        let refused = (1..=MOST_LINES).find_map(|number| {
            let said = add(number);
            let said = String::from_utf8_lossy(&[said.stdout, said.stderr].concat()).trim().to_owned();
            said.contains(NOT_ON_DISK).then_some((number, said))
        });
        let (number, said) = refused.ok_or_else(|| format!("{MOST_LINES} blocks went to a full disk"))?;
        self.say(&format!("  block {number} on a full disk: {said}"));
        self.here.reload();
        self.again(Site::kill_is_done)
    }

    /// A start that finds no memory fails, and what was in force stays in force.
    fn no_memory(&mut self) -> Result<(), String> {
        self.here.kill();
        let cap = match MemoryCap::new(self.here.edge.dir(), LITTLE_MEMORY) {
            Ok(cap) => cap,
            Err(error) => {
                self.say(&format!("  memory cannot be limited here: {error}"));
                return self.here.start(0);
            }
        };
        let started = self.here.try_start(cap.hold(&self.here.command(0)), 0);
        self.say(&format!(
            "  with little memory: {}",
            started.as_ref().err().map_or("started", String::as_str)
        ));
        drop(started);
        let view = self.here.edge.dir().join("cgroup");
        drop(cap);
        let _gone = fs::remove_dir(view);
        self.packet_counters.find_counters(&self.here.edge.pin());
        self.here.start(0)
    }

    fn few_files(&mut self) -> Result<(), String> {
        self.here.kill();
        let command = self.here.command(0);
        let mut few =
            with_open_files(std::path::Path::new(command.get_program()), 24 + self.deck.below(40) as u32);
        few.args(command.get_args());
        let started = self.here.try_start(few, 0);
        self.say(&format!("  with few files: {}", started.as_ref().err().map_or("started", String::as_str)));
        drop(started);
        self.packet_counters.find_counters(&self.here.edge.pin());
        self.here.start(0)
    }

    fn step_clock(&mut self, by_s: i64) -> Result<(), String> {
        let Some(file) = self.clock.clone() else {
            self.say("  no libfaketime here; the clock stays");
            return Ok(());
        };
        self.clock_s += by_s;
        fs::write(&file, format!("{:+}", self.clock_s)).map_err(|error| error.to_string())?;
        thread::sleep(Duration::from_millis(1_500));
        if self.deck.below(2) == 0 { self.again(Site::kill_is_done) } else { Ok(()) }
    }
}

impl Site {
    fn kill_is_done(&mut self) -> Result<(), String> {
        self.kill();
        Ok(())
    }
}
