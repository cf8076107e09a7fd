//! The main table as a picture: a group of bars for each case, as SVG by hand.

use std::fmt::Write as _;

use crate::{comparison::Comparison, report::Report};

const WIDTH: f64 = 1240.0;
const HEIGHT: f64 = 430.0;
const LEFT: f64 = 50.0;
const TOP: f64 = 64.0;
const BOTTOM: f64 = 100.0;
/// Part of a group's width that is left empty behind it.
const GAP: f64 = 0.2;
/// Dark to light: ours stands out, peers are the warm ones. Readable in grey.
const COLOURS: [(&str, &str); 11] = [
    ("bare", "#9e9e9e"),
    ("reader", "#c8c8c8"),
    ("as-many", "#b0bec5"),
    ("least", "#90a4ae"),
    ("ours", "#0b6e4f"),
    ("ours-no-gate", "#7fc8a9"),
    ("nft", "#c0392b"),
    ("nft-drop", "#e6a59d"),
    ("iptables", "#d68910"),
    ("iptables-drop", "#f3d3a2"),
    ("lru", "#6c5b9e"),
];
/// Of whoever else takes part.
const OTHER: &str = "#5d6d7e";

/// The picture of the one-core rig.
pub(crate) fn svg(report: &Report) -> String {
    let top = highest(&report.one_core);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"#ffffff\"/>\n"
    );
    text(&mut svg, LEFT, 20.0, "start", "Million packets per second on one core, generator and receiver");
    text(&mut svg, LEFT, 36.0, "start", &format!("{}; {}", report.machine.line(), report.command));
    axis(&mut svg, top);
    let group = (WIDTH - LEFT) / report.one_core.len().max(1) as f64;
    for (at, case) in report.one_core.iter().enumerate() {
        bars(&mut svg, case, LEFT + group * at as f64, group, top);
    }
    legend(&mut svg, &report.one_core);
    svg.push_str("</svg>\n");
    svg
}

/// The end of the axis: the next whole number of millions, even if that leaves some space.
fn highest(cases: &[Comparison]) -> f64 {
    let rates = cases.iter().flat_map(|case| &case.cells).filter_map(|cell| cell.spread);
    (rates.map(|spread| spread.max).fold(1e6, f64::max) / 1e6).ceil()
}

fn axis(svg: &mut String, top: f64) {
    let step = (top / 8.0).ceil();
    let mut value = 0.0;
    while value <= top {
        let y = height_of(value, top);
        let _written = writeln!(svg, "<path d=\"M{LEFT} {y:.1}H{WIDTH}\" stroke=\"#dddddd\"/>");
        text(svg, LEFT - 6.0, y + 4.0, "end", &format!("{value:.0}"));
        value += step;
    }
}

/// A bar is the median; the line on it goes from the slowest round to the fastest.
fn bars(svg: &mut String, case: &Comparison, left: f64, width: f64, top: f64) {
    let bar = width * (1.0 - GAP) / case.cells.len().max(1) as f64;
    for (at, cell) in case.cells.iter().enumerate() {
        let Some(rate) = cell.spread else { continue };
        let [median, min, max] = [rate.median, rate.min, rate.max].map(|value| height_of(value / 1e6, top));
        let (x, middle) = (left + bar * at as f64, left + bar * (at as f64 + 0.5));
        let height = height_of(0.0, top) - median;
        let colour = colour(cell.contestant);
        let _written = writeln!(
            svg,
            "<rect x=\"{x:.1}\" y=\"{median:.1}\" width=\"{:.1}\" height=\"{height:.1}\" fill=\"{colour}\"/>\
             <path d=\"M{middle:.1} {max:.1}V{min:.1}\" stroke=\"#333333\"/>",
            bar * 0.9
        );
    }
    text(svg, left + width * (1.0 - GAP) / 2.0, HEIGHT - BOTTOM + 18.0, "middle", &case.title);
}

fn legend(svg: &mut String, cases: &[Comparison]) {
    const PER_LINE: usize = 4;
    // Whoever is left out of one case is in another.
    let cells = cases.iter().max_by_key(|case| case.cells.len()).map(|case| &case.cells[..]);
    for (at, cell) in cells.unwrap_or_default().iter().enumerate() {
        let x = LEFT + (at % PER_LINE) as f64 * (WIDTH - LEFT) / PER_LINE as f64;
        let y = HEIGHT - BOTTOM + 36.0 + (at / PER_LINE) as f64 * 16.0;
        let colour = colour(cell.contestant);
        let _written = writeln!(
            svg,
            "<rect x=\"{x:.1}\" y=\"{:.1}\" width=\"10\" height=\"10\" fill=\"{colour}\"/>",
            y - 9.0
        );
        text(svg, x + 15.0, y, "start", cell.title);
    }
}

/// One contestant has one colour in every case.
fn colour(contestant: &str) -> &'static str {
    COLOURS.iter().find(|(name, _)| *name == contestant).map_or(OTHER, |(_, colour)| *colour)
}

fn height_of(millions: f64, top: f64) -> f64 {
    let floor = HEIGHT - BOTTOM;
    floor - (floor - TOP) * millions / top
}

fn text(svg: &mut String, x: f64, y: f64, anchor: &str, words: &str) {
    let words = words.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let _written = writeln!(svg, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{words}</text>");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comparison::{Cell, Sample, Unit};

    #[test]
    fn a_bar_ends_between_the_axis_and_the_floor_and_text_is_escaped() {
        let mut case = Comparison::new("1", "1 <source>", Unit::PacketsPerSecond);
        let mut cell = Cell::new("ours", "ratelimit");
        cell.add(Sample { value: 9.5e6, beside: None });
        case.cells.push(cell);
        let top = highest(std::slice::from_ref(&case));
        assert_eq!((top, height_of(top, top), height_of(0.0, top)), (10.0, TOP, HEIGHT - BOTTOM));
        let svg = svg(&Report { one_core: vec![case], ..Report::default() });
        assert_eq!(svg.matches("stroke=\"#333333\"").count(), 1);
        assert!(svg.contains("1 &lt;source&gt;") && svg.ends_with("</svg>\n"), "{svg}");
    }
}
