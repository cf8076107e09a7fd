//! Draws a screen on a terminal of 80 columns and 24 lines, or any other size. Colours never carry information alone.

use ratatui::{
    Frame,
    layout::{Constraint, Layout, Rect},
    style::{Color, Modifier, Style},
    text::{Line, Span},
    widgets::{Cell, Clear, Paragraph, Row, Sparkline, Table, TableState, Wrap},
};

use super::{
    rows::{TableRow, heads, short, summary},
    screen::Screen,
};

/// Draws a screen. Without colours, letters are bold, reversed or plain.
pub(super) fn draw(frame: &mut Frame<'_>, screen: &Screen, has_colours: bool) {
    let colour = |colour: Color| if has_colours { Style::new().fg(colour) } else { Style::new() };
    let has_attack = screen.view.as_ref().is_some_and(|view| !view.attacks.is_empty());
    let [head, lines, table, foot] = Layout::vertical([
        Constraint::Length(4 + u16::from(has_attack)),
        Constraint::Length(2),
        Constraint::Fill(1),
        Constraint::Length(2),
    ])
    .areas(frame.area());
    draw_head(frame, head, screen, colour(Color::Red));
    draw_sparklines(frame, lines, screen, [colour(Color::Green), colour(Color::Red)]);
    draw_table(frame, table, screen, colour(Color::Red));
    draw_foot(frame, foot, screen, colour(Color::Yellow));
    if let Some((text, top)) = &screen.page {
        frame.render_widget(Clear, table);
        let paragraph = Paragraph::new(text.as_str()).wrap(Wrap { trim: false }).scroll((*top, 0));
        frame.render_widget(paragraph, table);
    }
}

fn draw_head(frame: &mut Frame<'_>, area: Rect, screen: &Screen, alarming: Style) {
    let Some(view) = &screen.view else {
        frame.render_widget(Paragraph::new("looking at the traffic for a second..."), area);
        return;
    };
    let mut text: Vec<Line<'_>> = summary(view).into_iter().map(Line::from).collect();
    let is_calm = view.attack_state == "normal";
    let first = if is_calm { Style::new() } else { alarming.add_modifier(Modifier::BOLD) };
    // The state, and an attack if one goes on.
    let loud = 1 + usize::from(!view.attacks.is_empty());
    text.iter_mut().take(loud).for_each(|line| *line = std::mem::take(line).style(first));
    if let (true, Some(line)) = (screen.is_paused, text.first_mut()) {
        line.push_span("  PAUSED");
    }
    text.push(Line::from(screen.standing.line.clone()));
    frame.render_widget(Paragraph::new(text), area);
}

/// Columns for the label of a sparkline.
const LABEL: u16 = 14;

fn draw_sparklines(frame: &mut Frame<'_>, area: Rect, screen: &Screen, styles: [Style; 2]) {
    let areas: [Rect; 2] = Layout::vertical([Constraint::Length(1); 2]).areas(area);
    let last = screen.history.back().copied().unwrap_or_default();
    let series: [(&str, u64, Vec<u64>); 2] = [
        ("passed", last.0, screen.history.iter().map(|(passed, _)| *passed).collect()),
        ("dropped", last.1, screen.history.iter().map(|(_, dropped)| *dropped).collect()),
    ];
    for ((area, (name, now, mut values)), style) in areas.into_iter().zip(series).zip(styles) {
        let [label, line] = Layout::horizontal([Constraint::Length(LABEL), Constraint::Fill(1)]).areas(area);
        frame.render_widget(Paragraph::new(format!("{name:<8}{:>5}", short(now as f64))), label);
        // The newest values are at the right end.
        let surplus = values.len().saturating_sub(usize::from(line.width));
        values.drain(..surplus);
        frame.render_widget(Sparkline::default().data(values).style(style), line);
    }
}

fn draw_table(frame: &mut Frame<'_>, area: Rect, screen: &Screen, refused: Style) {
    let rows = screen.rows();
    let heads = heads(screen.grouping);
    let widths = widths(heads, &rows, area.width);
    let shown = heads.len().min(widths.len());
    let header =
        Row::new(heads[..shown].iter().enumerate().map(|(place, head)| aligned(head, place, &widths)))
            .style(Style::new().add_modifier(Modifier::BOLD | Modifier::REVERSED));
    let body = rows.iter().map(|row| {
        let cells = std::iter::once(&row.name).chain(&row.cells).take(shown);
        let style = if row.is_refused { refused } else { Style::new() };
        Row::new(cells.enumerate().map(|(place, cell)| aligned(cell, place, &widths))).style(style)
    });
    let constraints: Vec<Constraint> = widths.iter().map(|width| Constraint::Length(*width)).collect();
    let table = Table::new(body, constraints)
        .header(header)
        .column_spacing(1)
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
    let chosen = (!rows.is_empty()).then(|| screen.chosen_place(&rows));
    frame.render_stateful_widget(table, area, &mut TableState::default().with_selected(chosen));
}

/// A cell with numbers at the right and words at the left.
fn aligned<'t>(text: &str, place: usize, widths: &[u16]) -> Cell<'t> {
    let width = usize::from(widths.get(place).copied().unwrap_or(0));
    let is_number = text.starts_with(|letter: char| letter.is_ascii_digit()) && place > 0;
    let is_head = text.contains("/s") || matches!(text, "passed" | "dropped" | "+/-" | "left" | "here");
    let text = if is_number || is_head { format!("{text:>width$}") } else { text.to_owned() };
    Cell::from(Span::from(text))
}

/// The widths of columns, by their widest cells; columns that do not fit are left out, from the right.
fn widths(heads: &[&str], rows: &[TableRow], room: u16) -> Vec<u16> {
    let width = |place: usize, head: &str| {
        let cell = |row: &TableRow| if place == 0 { row.name.len() } else { row.cells[place - 1].len() };
        rows.iter().map(cell).chain([head.len()]).max().unwrap_or(0) as u16
    };
    let mut widths: Vec<u16> = heads.iter().enumerate().map(|(place, head)| width(place, head)).collect();
    while widths.len() > 1 && widths.iter().map(|width| width + 1).sum::<u16>() > room + 1 {
        widths.pop();
    }
    widths
}

fn draw_foot(frame: &mut Frame<'_>, area: Rect, screen: &Screen, attention: Style) {
    let bold = attention.add_modifier(Modifier::BOLD);
    let first = match (&screen.confirmation, &screen.message, screen.standing.warnings.first()) {
        (Some(confirmation), ..) => Line::styled(confirmation.question.clone(), bold),
        (None, Some(message), _) => Line::styled(message.clone(), attention),
        (None, None, Some(warning)) => {
            let others = screen.standing.warnings.len() - 1;
            let others = if others > 0 { format!(" (and {others} more)") } else { String::new() };
            Line::styled(format!("warning: {warning}{others}"), attention)
        }
        (None, None, None) => Line::default(),
    };
    let filter = match (screen.is_typing, screen.filter.as_str()) {
        (true, filter) => format!("filter: {filter}_"),
        (false, "") => "/ filter".to_owned(),
        (false, filter) => format!("/ filter ({filter})"),
    };
    let by = format!("{:?}", screen.ranking).to_lowercase();
    let keys = format!("1-6 group  s {by}  {filter}  Enter explain  b block  a allow  ? help  q quit");
    frame.render_widget(Paragraph::new(vec![first, Line::from(keys)]), area);
}

#[cfg(test)]
mod tests {
    use ratatui::{
        Terminal,
        backend::TestBackend,
        crossterm::event::{KeyCode, KeyEvent},
    };

    use super::{
        super::{
            rows::{Grouping, Ranking, tests::view},
            screen::HostSummary,
        },
        *,
    };

    fn shown(screen: &Screen, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, screen, false)).unwrap();
        let buffer = terminal.backend().buffer();
        let line = |y| -> String { (0..width).map(|x| buffer[(x, y)].symbol()).collect() };
        (0..height).map(|y| line(y).trim_end().to_owned() + "\n").collect()
    }

    fn screen() -> Screen {
        let mut screen = Screen::new(Grouping::Source, Ranking::Packets);
        screen.take_in(view());
        screen.know(HostSummary {
            line: "eth0 native  table 1.20k of 262k  store up, 3 hosts".to_owned(),
            warnings: vec!["the store does not answer".to_owned(), "another".to_owned()],
        });
        screen
    }

    #[test]
    fn an_attack_that_goes_on_is_a_line_more() {
        let mut screen = screen();
        let view = std::sync::Arc::make_mut(screen.view.as_mut().unwrap());
        view.attacks = vec!["attack 7: unusual_rate on the host".to_owned(), "attack 8: syn".to_owned()];
        let text = shown(&screen, 80, 24);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[1], "attack 7: unusual_rate on the host (and 1 more)", "{text}");
        assert!(
            lines[2].starts_with("packets/s: passed 1.23k ") && lines[4].starts_with("eth0 native "),
            "{text}"
        );
    }

    #[test]
    fn a_terminal_of_80_by_24_shows_the_attack_the_largest_sources_and_the_keys() {
        let text = shown(&screen(), 80, 24);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[..4],
            [
                "2026-11-16T12:00:00.000Z  mode enforce  attack state flood",
                "packets/s: passed 1.23k (987kbit/s)  dropped 988k (790Mbit/s)  answered 0",
                "8123 packets looked at, down to one in 64; unseen sources sent fewer than 192",
                "eth0 native  table 1.20k of 262k  store up, 3 hosts",
            ],
            "{text}"
        );
        assert!(lines[4].starts_with("passed  1.23k ") && lines[5].starts_with("dropped  988k "), "{text}");
        assert!(lines[5].contains('█'), "{text}");
        assert_eq!(
            lines[6], "source            packets/s bit/s dropped +/- left service user reason",
            "{text}"
        );
        assert_eq!(
            lines[7], "198.51.100.9           900k  720M    900k  12   0% dns:53  -    limit_packets",
            "{text}"
        );
        assert!(lines[9].ends_with(" dns:53* acme -"), "{text}");
        assert_eq!(lines[22], "warning: the store does not answer (and 1 more)", "{text}");
        assert!(lines[23].starts_with("1-6 group  s packets  / filter  Enter explain  b block"), "{text}");
    }

    #[test]
    fn users_services_and_hosts_show_what_is_left_of_their_limits_on_80_columns() {
        let mut screen = screen();
        for (key, expected) in [
            ('3', "dns             1.20k      988k          0  791M  44% 500000 packets/s"),
            ('4', "acme       700  792M       0  12  30%  64% dns:53  -"),
            ('6', "edge-2 late  1300 ms      0     12 431 us   1.0.0"),
        ] {
            screen.press(KeyEvent::from(KeyCode::Char(key)));
            let text = shown(&screen, 80, 24);
            assert!(text.lines().any(|line| line == expected), "{text}");
        }
    }

    #[test]
    fn nothing_breaks_on_a_terminal_of_any_size_and_narrow_ones_leave_columns_out() {
        for (width, height) in [(1, 1), (20, 3), (40, 10), (79, 23), (200, 60), (500, 2)] {
            shown(&screen(), width, height);
        }
        let text = shown(&screen(), 44, 12);
        assert!(
            text.contains("source            packets/s bit/s dropped") && !text.contains("reason"),
            "{text}"
        );
    }

    #[test]
    fn a_question_a_page_and_each_grouping_are_drawn() {
        let mut screen = screen();
        let press = |screen: &mut Screen, letter| screen.press(KeyEvent::from(KeyCode::Char(letter)));
        press(&mut screen, 'b');
        assert!(shown(&screen, 80, 24).contains("block 198.51.100.9? y: yes, any other key: no"));
        press(&mut screen, 'n');
        for (key, words) in
            [('2', "prefix"), ('3', "dns"), ('4', "user"), ('5', "limit_packets"), ('6', "edge-2")]
        {
            press(&mut screen, key);
            assert!(shown(&screen, 80, 24).contains(words));
        }
        screen.show("why: because".to_owned());
        assert!(shown(&screen, 80, 24).contains("why: because"));
        press(&mut screen, 'p');
        press(&mut screen, 'p');
        assert!(shown(&screen, 80, 24).contains("PAUSED"));
        assert!(shown(&Screen::default(), 80, 24).contains("looking at the traffic"));
    }
}
