//! A state directory on a disk that does not answer: a file system in a file of another one, which is frozen.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use ratelimit_tests::{answer::stdout, daemon::Edge, netns::run, redis::wait_for};

/// How long an order may take on a disk that hangs: ten seconds of waiting, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(25);

/// A disk that can be made to hang: writes to it wait for the file system that its file is in.
struct HangingDisk {
    outer: PathBuf,
    inner: PathBuf,
}

/// The time in which a disk hangs. A daemon whose threads wait for the disk cannot be killed, so this ends before the daemon does, in a test
/// that fails too.
struct Hang {
    /// Thaws the disk when its input ends, also if this process is killed, and after a minute at the latest.
    freezer: Child,
}

impl HangingDisk {
    /// Mounted on a directory, with its files in another one.
    fn mounted_on(inner: &Path, files: &Path) -> Self {
        let (image, outer) = (files.join("outer.img"), files.join("outer"));
        fs::create_dir(&outer).expect("a directory");
        fs::create_dir_all(inner).expect("a directory");
        let disk = Self { outer, inner: inner.to_owned() };
        formatted(&image, 48);
        mount(&image, &disk.outer);
        let image = disk.outer.join("inner.img");
        formatted(&image, 16);
        mount(&image, &disk.inner);
        disk
    }

    fn hang(&self) -> Hang {
        run(Command::new("sync").arg("-f").arg(&self.inner));
        let script =
            "sync -f \"$1\" && fsfreeze -f \"$1\" && echo frozen; timeout 60 cat; fsfreeze -u \"$1\"";
        let mut command = Command::new("sh");
        command.args(["-c", script, "sh"]).arg(&self.outer).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut hang = Hang { freezer: command.spawn().expect("a shell") };
        let mut said = String::new();
        let output = hang.freezer.stdout.as_mut().expect("its output");
        BufReader::new(output).read_line(&mut said).expect("a line");
        assert_eq!(said, "frozen\n");
        hang
    }
}

impl Drop for Hang {
    fn drop(&mut self) {
        drop(self.freezer.stdin.take());
        let _thawed = self.freezer.wait();
    }
}

impl Drop for HangingDisk {
    fn drop(&mut self) {
        // A daemon that is being killed may have files open.
        for mounted in [&self.inner, &self.outer] {
            let _gone = Command::new("umount").arg("-l").arg(mounted).output();
        }
    }
}

fn formatted(image: &Path, megabytes: u64) {
    fs::File::create(image).and_then(|file| file.set_len(megabytes << 20)).expect("a file");
    run(Command::new("mkfs.ext4").args(["-q", "-F"]).arg(image));
}

fn mount(image: &Path, on: &Path) {
    run(Command::new("mount").args(["-o", "loop"]).arg(image).arg(on));
}

#[test]
fn orders_that_change_the_lists_end_on_a_disk_that_hangs_and_others_do_not_wait_for_it() {
    let edge = Edge::new();
    let disk = HangingDisk::mounted_on(&edge.state(), edge.dir());
    let daemon = edge.start("[source]\nlimits = [\"1000 packets/s\"]\n");
    let add = |address: &str| edge.cli(&["block", "add", address]);
    let before = add("203.0.113.1");
    assert!(before.status.success() && !stdout(&before).contains("NOT ON DISK"), "{}", stdout(&before));
    let hang = disk.hang();
    let began = Instant::now();
    std::thread::scope(|scope| {
        let hanging: Vec<_> = ["203.0.113.2", "203.0.113.3"].map(|one| scope.spawn(move || add(one))).into();
        // Whoever changes nothing is answered meanwhile.
        for _ in 0..3 {
            let asked = Instant::now();
            assert!(edge.cli(&["status"]).status.success());
            assert!(asked.elapsed() < Duration::from_secs(5), "status took {:?}", asked.elapsed());
        }
        for order in hanging {
            let said = order.join().expect("an order");
            assert!(said.status.success(), "the block is in force: {said:?}");
            let text = stdout(&said);
            assert!(
                text.contains("NOT ON DISK") && text.contains("the disk has not answered within 10 s"),
                "{text}"
            );
        }
    });
    assert!(began.elapsed() < PATIENCE, "{:?}", began.elapsed());
    drop(hang);
    wait_for("an order that is on disk", || {
        let after = stdout(&add("203.0.113.4"));
        (after.starts_with("blocked") && !after.contains("NOT ON DISK")).then_some(())
    });
    daemon.kill_9();
    let _again = edge.start_again();
    let kept = edge.json(&["block", "list"])["blocks"].as_array().map(Vec::len);
    assert_eq!(kept, Some(4), "all are in force after a restart");
}
