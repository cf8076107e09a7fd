//! A screen on the real terminal, until somebody quits.

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

/// How long a key waits to be looked at.
const GLANCE: Duration = Duration::from_millis(50);
/// How long to wait before asking again after a failure.
const PAUSE: Duration = Duration::from_secs(1);

/// A host that can be asked about its traffic.
pub trait WatchedHost: Send + Sync + 'static {
    /// The next second of traffic. Takes about a second.
    fn view(&self) -> Result<StatsView, Failure>;
    /// What is known of the host.
    fn standing(&self) -> Result<HostSummary, Failure>;
    /// Why a source is treated as it is.
    fn explain(&self, source: &str) -> Result<String, Failure>;
    /// Blocks a source, and says so in a sentence.
    fn block(&self, source: &str) -> Result<String, Failure>;
    /// Allows a source, and says so in a sentence.
    fn allow(&self, source: &str) -> Result<String, Failure>;
}

type News = Result<(StatsView, HostSummary), Failure>;

/// Shows a screen until somebody quits, a signal ends it or the terminal goes away. The terminal is as it was afterwards, also after a panic.
pub fn run(host: &Arc<impl WatchedHost>, screen: Screen, has_colours: bool) -> Result<(), Failure> {
    let unusable = |error: io::Error| {
        Failure::usage(format!("the terminal cannot be drawn on: {error}; use top --once"))
    };
    let ended = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP, signal_hook::consts::SIGINT] {
        signal_hook::flag::register(signal, Arc::clone(&ended)).map_err(unusable)?;
    }
    let news = follow(host);
    // Also sets a panic hook that gives the terminal back.
    let mut terminal = ratatui::try_init().map_err(unusable)?;
    hangup::end_with_terminal();
    let outcome = show(&mut terminal, &**host, screen, &news, &ended, has_colours);
    // A terminal that is gone is not given back: the library would panic for not being able to say so.
    if outcome.is_err() && hangup::reader_has_gone() {
        process::exit(0);
    }
    ratatui::try_restore().map_err(unusable)?;
    outcome.map_err(unusable)
}

/// Asks the daemon on a thread of its own, so that keys do not wait for it. It ends with the process.
fn follow(host: &Arc<impl WatchedHost>) -> Receiver<News> {
    // One waits at most: who does not look does not have them pile up.
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
            // The daemon may be restarting: the last view stays, and the sentence says so.
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
