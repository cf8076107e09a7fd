//! Plots offered and passed packets as one SVG without scripts, readable in light and dark.

use std::fmt::Write as _;

use super::series::{Bin, Series};

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 320.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 36.0;

/// Text contrasts with the page in light and dark mode; lines differ in more than colour.
const STYLE: &str = "text{font:12px sans-serif;fill:#222}.axis{stroke:#888;stroke-width:1}.grid{stroke:#ccc;stroke-width:.5}\
.offered{fill:#9aa5b1;fill-opacity:.45;stroke:#66717d}.passed{fill:none;stroke:#0b6e4f;stroke-width:2}\
.against{fill:none;stroke:#b3541e;stroke-width:2;stroke-dasharray:6 3}.page{fill:#fff}\
@media(prefers-color-scheme:dark){text{fill:#ddd}.page{fill:#16191d}.grid{stroke:#444}.passed{stroke:#4fd1a5}.against{stroke:#f0a36b}}";

/// A line of passed packets.
#[derive(Clone, Copy, Debug)]
pub struct PlotLine<'l> {
    /// The name in the legend.
    pub name: &'l str,
    /// Packets that passed, over time.
    pub series: &'l Series,
}

/// The plot as SVG. `start` is the time of the first packet.
pub fn svg(start: &str, policy: &PlotLine<'_>, against: Option<&PlotLine<'_>>) -> String {
    let seconds = policy.series.seconds_per_bin() as f64;
    let offered: Vec<f64> =
        policy.series.bins().iter().map(|bin| bin.offered_packets as f64 / seconds).collect();
    let top = round_up(offered.iter().copied().fold(1.0, f64::max));
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"packets per second, offered and passed\">\
         <style>{STYLE}</style><rect class=\"page\" width=\"{WIDTH}\" height=\"{HEIGHT}\"/>\n"
    );
    for quarter in 0..=4 {
        let value = top * f64::from(quarter) / 4.0;
        let y = y(value, top);
        let _ = writeln!(
            text,
            "<line class=\"grid\" x1=\"{LEFT}\" y1=\"{y:.1}\" x2=\"{:.1}\" y2=\"{y:.1}\"/>",
            WIDTH - RIGHT
        );
        let _ = writeln!(
            text,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            LEFT - 6.0,
            y + 4.0,
            number(value)
        );
    }
    let mut area = path(&offered, top);
    if !offered.is_empty() {
        let _ = write!(area, " L{:.1} {:.1} L{LEFT} {:.1} Z", WIDTH - RIGHT, y(0.0, top), y(0.0, top));
    }
    let _ = writeln!(text, "<path class=\"offered\" d=\"{area}\"/>");
    let mut legend = vec![("offered", "offered".to_owned()), ("passed", format!("passed, {}", policy.name))];
    let _ = writeln!(text, "<path class=\"passed\" d=\"{}\"/>", path(&passed(policy.series), top));
    if let Some(against) = against {
        legend.push(("against", format!("passed, {}", against.name)));
        let _ = writeln!(text, "<path class=\"against\" d=\"{}\"/>", path(&passed(against.series), top));
    }
    for ((class, words), at) in legend.iter().zip(0_u8..) {
        let x = LEFT + f64::from(at) * 220.0;
        let _ =
            writeln!(text, "<line class=\"{class}\" x1=\"{x}\" y1=\"20\" x2=\"{:.1}\" y2=\"20\"/>", x + 24.0);
        let _ = writeln!(text, "<text x=\"{:.1}\" y=\"24\">{}</text>", x + 30.0, escaped(words));
    }
    let span = offered.len() as f64 * seconds;
    let _ = writeln!(
        text,
        "<line class=\"axis\" x1=\"{LEFT}\" y1=\"{0:.1}\" x2=\"{1:.1}\" y2=\"{0:.1}\"/>",
        y(0.0, top),
        WIDTH - RIGHT
    );
    let _ = writeln!(text, "<text x=\"{LEFT}\" y=\"{:.1}\">{}</text>", HEIGHT - 12.0, escaped(start));
    let _ = writeln!(
        text,
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{span:.0} s later; packets per second</text>\n</svg>",
        WIDTH - RIGHT,
        HEIGHT - 12.0
    );
    text
}

fn passed(series: &Series) -> Vec<f64> {
    let seconds = series.seconds_per_bin() as f64;
    series.bins().iter().map(|bin: &Bin| bin.passed_packets as f64 / seconds).collect()
}

fn y(value: f64, top: f64) -> f64 {
    HEIGHT - BOTTOM - value / top * (HEIGHT - BOTTOM - TOP)
}

/// A line through all values, each as wide as its bin, so that even a capture of one second has a line.
fn path(values: &[f64], top: f64) -> String {
    let wide = (WIDTH - RIGHT - LEFT) / values.len().max(1) as f64;
    let mut text = String::new();
    for (value, at) in values.iter().zip(0_u32..) {
        let (x, y) = (LEFT + f64::from(at) * wide, y(*value, top));
        let _ = write!(text, "{}{x:.1} {y:.1} L{:.1} {y:.1}", if at == 0 { "M" } else { " L" }, x + wide);
    }
    text
}

/// The next number of one or two digits that is not below `value`.
fn round_up(value: f64) -> f64 {
    let power = 10_f64.powf(value.max(1.0).log10().floor());
    [1.0, 2.0, 4.0, 6.0, 8.0, 10.0]
        .into_iter()
        .map(|part| part * power)
        .find(|top| *top >= value)
        .unwrap_or(value)
}

fn number(value: f64) -> String {
    match value {
        value if value >= 1e6 => format!("{} M", value / 1e6),
        value if value >= 1e3 => format!("{} k", value / 1e3),
        value => format!("{value}"),
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(rows: &[(u64, u64)]) -> Series {
        let mut series = Series::default();
        for ((offered, passed), second) in rows.iter().zip(0..) {
            let bin = Bin { offered_packets: *offered, passed_packets: *passed, ..Bin::default() };
            series.add(second, &bin);
        }
        series
    }

    #[test]
    fn what_passed_is_drawn_below_what_was_offered() {
        let (one, other) = (series(&[(100, 100), (800, 200)]), series(&[(100, 50), (800, 400)]));
        let line = PlotLine { name: "a<b.toml", series: &one };
        let text = svg("2026-11-16T14:00:00Z", &line, Some(&PlotLine { name: "other.toml", series: &other }));
        // In the plot 800 is at the top, 400 half way up, and 200 a quarter of the way.
        assert!(
            text.contains("class=\"offered\" d=\"M64.0 253.5 L404.0 253.5 L404.0 40.0 L744.0 40.0"),
            "{text}"
        );
        assert!(
            text.contains("class=\"passed\" d=\"M64.0 253.5 L404.0 253.5 L404.0 223.0 L744.0 223.0\""),
            "{text}"
        );
        assert!(text.contains("class=\"against\"") && text.contains("passed, a&lt;b.toml"), "{text}");
        assert!(text.ends_with("</svg>\n") && text.contains("prefers-color-scheme:dark"));
    }

    #[test]
    fn a_capture_without_packets_is_a_picture_too() {
        let none = Series::default();
        let text = svg("nothing", &PlotLine { name: "policy.toml", series: &none }, None);
        assert!(text.contains("<path class=\"passed\" d=\"\"/>") && !text.contains("NaN"), "{text}");
    }
}
