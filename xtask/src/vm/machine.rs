//! Runs one virtual machine at a time: qemu with KVM if that works, and with emulation if not.

use std::fmt;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::console::{self, Expectation, PROBE, Results};
use super::kernel::Kernel;
use crate::demo::interrupt::Interrupt;
use crate::{tool, workspace};

/// How long the probe of KVM may take. With KVM a guest is up in two seconds; with a broken KVM it hangs, often before the first instruction.
const PROBE_LIMIT: Duration = Duration::from_secs(10);
const KVM_LIMIT: Duration = Duration::from_secs(600);
/// How long an emulated guest may take. The emulated verifier takes ten seconds or more for each of the sixty loads of all suites, beside other work.
const EMULATION_LIMIT: Duration = Duration::from_secs(3600);
/// The modules of KVM that run any kernel. Other kinds of KVM, such as `kvm_pvm` in a virtual machine, only boot kernels that were made for them.
const KVM_OF_A_CPU: [&str; 2] = ["/sys/module/kvm_intel", "/sys/module/kvm_amd"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Kvm,
    Emulation,
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Kvm => "KVM",
            Self::Emulation => "emulation",
        })
    }
}

/// The abilities of this machine.
pub(super) struct Host {
    mode: Mode,
    limit: Duration,
}

/// The result of a guest's whole life.
pub(super) struct Boot {
    pub(super) console: String,
    pub(super) took: Duration,
    /// Whether the guest had to be ended because its time was over.
    pub(super) out_of_time: bool,
}

impl Host {
    /// Finds out by booting a guest whether KVM works: the device may be there and not work.
    pub(super) fn probe(
        kernel: &Kernel,
        image: &Path,
        timeout_s: Option<u64>,
        interrupt: &Interrupt,
    ) -> Result<Self> {
        let is_of_a_cpu = KVM_OF_A_CPU.iter().any(|module| Path::new(module).exists());
        let mode = if !Path::new("/dev/kvm").exists() {
            Mode::Emulation
        } else if !is_of_a_cpu {
            eprintln!("vm: KVM is here and cannot run these kernels: it is neither kvm_intel nor kvm_amd");
            Mode::Emulation
        } else {
            let boot = start(command(Mode::Kvm, kernel, image, PROBE, false), PROBE_LIMIT, interrupt)?;
            let works = Results::read(&boot.console, Expectation::Suites).finished;
            if !works {
                eprintln!("vm: KVM is here but did not boot a guest in {} s", PROBE_LIMIT.as_secs());
            }
            if works { Mode::Kvm } else { Mode::Emulation }
        };
        let usual = if mode == Mode::Kvm { KVM_LIMIT } else { EMULATION_LIMIT };
        Ok(Self { mode, limit: timeout_s.map_or(usual, Duration::from_secs) })
    }

    pub(super) fn mode(&self) -> Mode {
        self.mode
    }

    pub(super) fn boot(
        &self,
        kernel: &Kernel,
        image: &Path,
        expect: &str,
        is_recording: bool,
        interrupt: &Interrupt,
    ) -> Result<Boot> {
        start(command(self.mode, kernel, image, expect, is_recording), self.limit, interrupt)
    }
}

/// Boots a guest, waits until it switches itself off, and returns its console.
fn start(mut qemu: Command, limit: Duration, interrupt: &Interrupt) -> Result<Boot> {
    let path = super::dir().join("console.txt");
    let console = fs::File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
    let began = Instant::now();
    // qemu gets a group of its own: Ctrl-C reaches only us, and the guard ends it.
    qemu.process_group(0).stdin(Stdio::null()).stderr(console.try_clone()?).stdout(console);
    let mut guest = Guest(qemu.spawn().context("cannot start qemu-system-x86_64")?);
    let ended = interrupt.wait_for(limit, || guest.0.try_wait().context("cannot wait for qemu"))?;
    let took = began.elapsed();
    drop(guest);
    let bytes = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(Boot { console: String::from_utf8_lossy(&bytes).into_owned(), took, out_of_time: ended.is_none() })
}

/// Loads the programs on this machine's own kernel, and returns the output in the form of a guest's console.
pub(super) fn here(suites: &Path, is_recording: bool) -> Result<Boot> {
    let began = Instant::now();
    let release =
        fs::read_to_string("/proc/sys/kernel/osrelease").context("cannot read this kernel's release")?;
    let mut loading = tool::command(suites);
    loading.args(console::LOADING).env("CARGO_MANIFEST_DIR", workspace::root().join("tests"));
    loading.envs(is_recording.then_some((console::RECORDING, "1")));
    let done = loading.output().with_context(|| format!("cannot start {}", suites.display()))?;
    let said = String::from_utf8_lossy(&[done.stdout, done.stderr].concat()).into_owned();
    let console = console::as_of_a_guest(release.trim(), &said, done.status.code().unwrap_or(-1));
    Ok(Boot { console, took: began.elapsed(), out_of_time: false })
}

fn command(mode: Mode, kernel: &Kernel, image: &Path, expect: &str, is_recording: bool) -> Command {
    let mut qemu = tool::command("qemu-system-x86_64");
    // A CPU with few features takes a third less time to emulate than one with all that qemu knows.
    qemu.args(match mode {
        Mode::Kvm => ["-accel", "kvm", "-cpu", "host"],
        Mode::Emulation => ["-accel", "tcg,thread=multi,tb-size=1024", "-cpu", "Nehalem"],
    });
    // The guest has two CPUs, so that races can happen, and no network card, so that it reaches nothing of this machine.
    qemu.args(["-smp", "2", "-m", "3072", "-nodefaults", "-nic", "none", "-display", "none", "-no-reboot"]);
    qemu.args(["-serial", "stdio"]).arg("-kernel").arg(&kernel.image).arg("-initrd").arg(image);
    // On a busy machine an emulated timer may be late when the kernel checks whether it works.
    let recording = if is_recording { format!(" {}=1", console::RECORDING) } else { String::new() };
    // The guest has no secrets, and mitigations are most of the cost of an emulated system call.
    let faster = "mitigations=off init_on_alloc=0";
    // Words that the kernel does not know become the environment of the guest's first process.
    qemu.args([
        "-append",
        &format!("console=ttyS0 quiet panic=-1 no_timer_check {faster} expect={expect}{recording}"),
    ]);
    qemu
}

/// A guard that ends its guest when it is dropped.
struct Guest(Child);

impl Drop for Guest {
    fn drop(&mut self) {
        let _ended_already = self.0.kill();
        let _gone = self.0.wait();
    }
}
