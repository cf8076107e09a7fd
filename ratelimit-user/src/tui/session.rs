//! Runs a screen on the real terminal until the user quits.

use std::{
    io, process,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{self, Receiver, RecvTimeoutError},
    },
    thread,
    time::Duration,
};

use ratatui::{
    DefaultTerminal,
    crossterm::event::{self, Event, KeyEventKind},
};

use super::{
    draw::draw,
    screen::{HostSummary, Screen, Wish},
};
use crate::{failure::Failure, hangup, stats::view::StatsView};

/// The longest time before a key is handled.
const GLANCE: Duration = Duration::from_millis(50);
/// How long to wait after a failure before asking again.
const PAUSE: Duration = Duration::from_secs(1);

/// A host that can be asked about its traffic.
pub trait WatchedHost: Send + Sync + 'static {
    /// The next second of traffic. Takes about a second.
    fn view(&self) -> Result<StatsView, Failure>;
    /// The summary of the host.
    fn standing(&self) -> Result<HostSummary, Failure>;
    /// The explanation of the treatment of a source.
    fn explain(&self, source: &str) -> Result<String, Failure>;
    /// Blocks a source, and returns a sentence about it.
    fn block(&self, source: &str) -> Result<String, Failure>;
    /// Allows a source, and returns a sentence about it.
    fn allow(&self, source: &str) -> Result<String, Failure>;
}

type News = Result<(StatsView, HostSummary), Failure>;

/// Shows a screen until the user quits, a signal comes or the terminal goes away. The terminal is restored afterwards, even after a panic.
pub fn run(host: &Arc<impl WatchedHost>, screen: Screen, has_colours: bool) -> Result<(), Failure> {
    let unusable = |error: io::Error| {
        Failure::usage(format!("the terminal cannot be drawn on: {error}; use top --once"))
    };
    let ended = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP, signal_hook::consts::SIGINT] {
        signal_hook::flag::register(signal, Arc::clone(&ended)).map_err(unusable)?;
    }
    let news = follow(host);
    // This also sets a panic hook that restores the terminal.
    let mut terminal = ratatui::try_init().map_err(unusable)?;
    hangup::end_with_terminal();
    let outcome = show(&mut terminal, &**host, screen, &news, &ended, has_colours);
    // A terminal that is gone is not restored: the library would panic because it cannot report that.
    if outcome.is_err() && hangup::reader_has_gone() {
        process::exit(0);
    }
    ratatui::try_restore().map_err(unusable)?;
    outcome.map_err(unusable)
}

/// Asks the daemon on a thread of its own, so that keys do not wait for it. The thread ends with the process.
fn follow(host: &Arc<impl WatchedHost>) -> Receiver<News> {
    // At most one view waits, so that views do not pile up while nobody reads them.
    let (sender, receiver) = mpsc::sync_channel(1);
    let host = Arc::clone(host);
    thread::spawn(move || {
        loop {
            let news = host.view().and_then(|view| Ok((view, host.standing()?)));
            let failed = news.is_err();
            if sender.send(news).is_err() {
                return;
            }
            if failed {
                thread::sleep(PAUSE);
            }
        }
    });
    receiver
}

fn show(
    terminal: &mut DefaultTerminal,
    host: &impl WatchedHost,
    mut screen: Screen,
    news: &Receiver<News>,
    ended: &AtomicBool,
    has_colours: bool,
) -> io::Result<()> {
    let mut is_lost = false;
    loop {
        terminal.draw(|frame| draw(frame, &screen, has_colours))?;
        match news.recv_timeout(GLANCE) {
            Ok(Ok((view, standing))) => {
                if std::mem::take(&mut is_lost) {
                    screen.unsay();
                }
                screen.take_in(view);
                screen.know(standing);
            }
            // The daemon may be restarting: the last view stays, with a sentence about it.
            Ok(Err(failure)) => {
                is_lost = true;
                screen.say(failure.message);
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
        }
        while event::poll(Duration::ZERO)? {
            let Event::Key(key) = event::read()? else { continue };
            if key.kind == KeyEventKind::Release {
                continue;
            }
            match screen.press(key) {
                Some(Wish::Quit) => return Ok(()),
                Some(wish) => fulfil(&wish, host, &mut screen),
                None => {}
            }
        }
        if ended.load(Ordering::Relaxed) {
            return Ok(());
        }
    }
}

fn fulfil(wish: &Wish, host: &impl WatchedHost, screen: &mut Screen) {
    let outcome = match wish {
        Wish::Quit => return,
        Wish::Explain(source) => match host.explain(source) {
            Ok(text) => {
                screen.show(text);
                return;
            }
            Err(failure) => Err(failure),
        },
        Wish::Block(source) => host.block(source),
        Wish::Allow(source) => host.allow(source),
    };
    screen.say(outcome.unwrap_or_else(|failure| failure.message));
}
