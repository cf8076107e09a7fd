//! The state of the screen, and how keys change it.

use std::{collections::VecDeque, sync::Arc};

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::rows::{Grouping, Ranking, TableRow, rows};
use crate::stats::view::StatsView;

/// Seconds of history in the sparklines.
pub(super) const HISTORY: usize = 240;
/// The most characters of a filter.
const LONGEST_FILTER: usize = 64;

/// Facts about the host that do not fit into a view of its traffic.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostSummary {
    /// One line: interfaces, table, cluster.
    pub line: String,
    /// Warnings for the operator.
    pub warnings: Vec<String>,
}

/// An action that the user at the keyboard asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wish {
    /// Leave the screen.
    Quit,
    /// Explain the treatment of a source.
    Explain(String),
    /// Block a source or a prefix.
    Block(String),
    /// Allow a source or a prefix.
    Allow(String),
}

/// A question that waits for yes or no.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Confirmation {
    pub(super) question: String,
    wish: Wish,
}

/// The state of the screen.
#[derive(Clone, Debug, Default)]
pub struct Screen {
    pub(super) view: Option<Arc<StatsView>>,
    pub(super) standing: HostSummary,
    /// Packets per second that passed and that were dropped, oldest first.
    pub(super) history: VecDeque<(u64, u64)>,
    pub(super) grouping: Grouping,
    pub(super) ranking: Ranking,
    pub(super) filter: String,
    pub(super) is_typing: bool,
    pub(super) is_paused: bool,
    /// The name of the chosen row, so that it stays chosen when rows change places.
    pub(super) chosen: Option<String>,
    pub(super) confirmation: Option<Confirmation>,
    /// A longer text over the table, and its first visible line.
    pub(super) page: Option<(String, u16)>,
    /// The result of the last wish, or a problem.
    pub(super) message: Option<String>,
}

impl Screen {
    /// A screen without a view.
    pub fn new(grouping: Grouping, ranking: Ranking) -> Self {
        Self { grouping, ranking, ..Self::default() }
    }

    /// Shows the next view, unless the screen is paused.
    pub fn take_in(&mut self, view: StatsView) {
        let packets = |flow: &crate::stats::flow::Flow| flow.packets_per_second.round() as u64;
        self.history.push_back((packets(&view.passed), packets(&view.dropped)));
        if self.history.len() > HISTORY {
            self.history.pop_front();
        }
        if !self.is_paused {
            self.view = Some(Arc::new(view));
        }
    }

    /// Replaces the summary of the host.
    pub fn know(&mut self, standing: HostSummary) {
        self.standing = standing;
    }

    /// Shows a sentence in the last line.
    pub fn say(&mut self, message: String) {
        self.message = Some(message);
    }

    /// Clears the sentence in the last line.
    pub(super) fn unsay(&mut self) {
        self.message = None;
    }

    /// Shows a longer text over the table.
    pub fn show(&mut self, text: String) {
        self.page = Some((text, 0));
    }

    /// The rows of the table.
    pub(super) fn rows(&self) -> Vec<TableRow> {
        self.view.as_ref().map_or_else(Vec::new, |view| rows(view, self.grouping, self.ranking, &self.filter))
    }

    /// The index of the chosen row; 0 if the row is gone.
    pub(super) fn chosen_place(&self, rows: &[TableRow]) -> usize {
        let name = self.chosen.as_deref();
        rows.iter().position(|row| Some(row.name.as_str()) == name).unwrap_or(0)
    }

    /// Handles a key: it changes the screen, or gives a wish.
    pub fn press(&mut self, key: KeyEvent) -> Option<Wish> {
        if key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c') {
            return Some(Wish::Quit);
        }
        self.message = None;
        if let Some(confirmation) = self.confirmation.take() {
            return matches!(key.code, KeyCode::Char('y' | 'Y')).then_some(confirmation.wish);
        }
        if self.page.is_some() {
            self.turn_page(key.code);
            return None;
        }
        if self.is_typing {
            self.type_filter(key.code);
            return None;
        }
        self.command(key.code)
    }

    fn turn_page(&mut self, code: KeyCode) {
        let Some((_, top)) = &mut self.page else { return };
        match code {
            KeyCode::Down | KeyCode::Char('j') => *top = top.saturating_add(1),
            KeyCode::Up | KeyCode::Char('k') => *top = top.saturating_sub(1),
            _ => self.page = None,
        }
    }

    fn type_filter(&mut self, code: KeyCode) {
        match code {
            KeyCode::Enter => self.is_typing = false,
            KeyCode::Esc => {
                self.is_typing = false;
                self.filter.clear();
            }
            KeyCode::Backspace => {
                self.filter.pop();
            }
            KeyCode::Char(letter) if self.filter.len() < LONGEST_FILTER => self.filter.push(letter),
            _ => {}
        }
    }

    fn command(&mut self, code: KeyCode) -> Option<Wish> {
        match code {
            KeyCode::Char('q') | KeyCode::Esc => return Some(Wish::Quit),
            KeyCode::Char('1') => self.group(Grouping::Source),
            KeyCode::Char('2') => self.group(Grouping::Prefix),
            KeyCode::Char('3') => self.group(Grouping::Service),
            KeyCode::Char('4') => self.group(Grouping::User),
            KeyCode::Char('5') => self.group(Grouping::Reason),
            KeyCode::Char('6') => self.group(Grouping::Host),
            KeyCode::Char('s') => {
                self.ranking = match self.ranking {
                    Ranking::Packets => Ranking::Bytes,
                    Ranking::Bytes => Ranking::Dropped,
                    Ranking::Dropped => Ranking::Packets,
                };
            }
            KeyCode::Char('/') => self.is_typing = true,
            KeyCode::Char('p' | ' ') => self.is_paused = !self.is_paused,
            KeyCode::Char('?' | 'h') => self.show(HELP.to_owned()),
            KeyCode::Down | KeyCode::Char('j') => self.choose(1),
            KeyCode::Up | KeyCode::Char('k') => self.choose(-1),
            KeyCode::Enter | KeyCode::Char('e') => return self.about_chosen(Wish::Explain),
            KeyCode::Char('b') => self.ask("block", Wish::Block),
            KeyCode::Char('a') => self.ask("always allow", Wish::Allow),
            _ => {}
        }
        None
    }

    fn group(&mut self, grouping: Grouping) {
        self.grouping = grouping;
        self.chosen = None;
    }

    fn choose(&mut self, step: isize) {
        let rows = self.rows();
        let place = self.chosen_place(&rows).saturating_add_signed(step);
        self.chosen = rows.get(place).or(rows.last()).map(|row| row.name.clone());
    }

    /// The chosen row, if it is a source or prefix, which can be explained, blocked or allowed.
    fn chosen_source(&self) -> Option<String> {
        if !matches!(self.grouping, Grouping::Source | Grouping::Prefix) {
            return None;
        }
        let rows = self.rows();
        rows.get(self.chosen_place(&rows)).map(|row| row.name.clone())
    }

    fn about_chosen(&mut self, wish: impl FnOnce(String) -> Wish) -> Option<Wish> {
        let chosen = self.chosen_source();
        if chosen.is_none() {
            self.say("choose a source (1) or a prefix (2) first".to_owned());
        }
        chosen.map(wish)
    }

    fn ask(&mut self, verb: &str, wish: impl FnOnce(String) -> Wish) {
        if let Some(source) = self.chosen_source() {
            let question = format!("{verb} {source}? y: yes, any other key: no");
            self.confirmation = Some(Confirmation { question, wish: wish(source) });
        } else {
            self.say("choose a source (1) or a prefix (2) first".to_owned());
        }
    }
}

const HELP: &str = "\
1 to 6      sources, prefixes, services, users, reasons, hosts of the cluster
s           order: packets, bytes, dropped packets
/           show only names that contain what you type; Esc shows all
up down     choose a row
Enter e     explain the chosen source
b           block the chosen source or prefix for ten minutes (asks first)
a           put it on the allow list (asks first)
p space     pause
q Esc       quit

Rates in total, by service and by reason are exact. Those of sources, prefixes and
users are exact while every packet is looked at; otherwise the column +/- says how far
they may be off, nineteen times out of twenty.
left: the part of the burst that is left of the limit that refuses first.
here: the part of a limit of all hosts that was spent on this host.
*: a known client of the service, which comes first when the total is spent.";

#[cfg(test)]
mod tests {
    use super::{super::rows::tests::view, *};

    fn screen() -> Screen {
        let mut screen = Screen::new(Grouping::Source, Ranking::Packets);
        screen.take_in(view());
        screen
    }

    fn press(screen: &mut Screen, keys: &str) -> Vec<Option<Wish>> {
        let code = |letter| if letter == '\n' { KeyCode::Enter } else { KeyCode::Char(letter) };
        keys.chars().map(|letter| screen.press(KeyEvent::from(code(letter)))).collect()
    }

    #[test]
    fn a_block_is_wished_for_only_after_a_yes() {
        let mut screen = screen();
        assert_eq!(press(&mut screen, "jbn"), [None, None, None]);
        assert_eq!(press(&mut screen, "by"), [None, Some(Wish::Block("2001:db8:0:1::/64".to_owned()))]);
        assert_eq!(press(&mut screen, "kay")[2], Some(Wish::Allow("198.51.100.9".to_owned())));
        assert_eq!(press(&mut screen, "\n"), [Some(Wish::Explain("198.51.100.9".to_owned()))]);
    }

    #[test]
    fn services_and_reasons_cannot_be_blocked_and_the_screen_says_why() {
        let mut screen = screen();
        assert_eq!(press(&mut screen, "3by").last(), Some(&None));
        press(&mut screen, "5b");
        assert_eq!(screen.message.as_deref(), Some("choose a source (1) or a prefix (2) first"));
    }

    #[test]
    fn the_chosen_row_stays_chosen_when_others_overtake_it_and_while_a_filter_is_typed_letters_are_letters() {
        let mut screen = screen();
        press(&mut screen, "js");
        let rows = screen.rows();
        assert_eq!(rows[screen.chosen_place(&rows)].name, "2001:db8:0:1::/64", "by bytes it is the last");
        assert_eq!(press(&mut screen, "/q.7\n"), [None, None, None, None, None]);
        assert_eq!((screen.filter.as_str(), screen.rows().len()), ("q.7", 0));
        assert_eq!(press(&mut screen, "q"), [Some(Wish::Quit)]);
    }

    #[test]
    fn a_paused_screen_keeps_its_view_and_goes_on_with_its_history() {
        let mut screen = screen();
        press(&mut screen, "p");
        screen.take_in(StatsView { at: "later".to_owned(), ..view() });
        assert_eq!(screen.view.as_ref().map(|view| view.at.as_str()), Some("2026-11-16T12:00:00.000Z"));
        assert_eq!(screen.history.len(), 2);
        (0..1_000).for_each(|_| screen.take_in(view()));
        assert_eq!(screen.history.len(), HISTORY);
    }

    #[test]
    fn ctrl_c_quits_whatever_is_open() {
        let mut screen = screen();
        press(&mut screen, "b");
        let interrupt = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert_eq!(screen.press(interrupt), Some(Wish::Quit));
    }
}
