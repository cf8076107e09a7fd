//! Checks the documentation against the code: everything that people copy from a page must work as it stands there.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use clap::error::ErrorKind;
use ratelimit_common::abi::Reason;

use crate::{cli, config};

/// The most lines of README.md, so that a newcomer learns within a minute what the project is.
const README_LINES: usize = 150;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(file: &str) -> String {
    fs::read_to_string(root().join(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

/// The paths of all pages in the repository.
fn pages() -> Vec<String> {
    let mut pages = vec!["README.md".to_owned(), "CONTRIBUTING.md".to_owned()];
    let mut folders = vec!["docs".to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(root().join(&folder)).unwrap() {
            let entry = entry.unwrap();
            let name = format!("{folder}/{}", entry.file_name().to_string_lossy());
            if entry.path().is_dir() {
                folders.push(name);
            } else if name.ends_with(".md") {
                pages.push(name);
            }
        }
    }
    pages.sort();
    pages
}

/// The code blocks of a page: indented by four spaces, or between fences.
fn code_blocks(page: &str) -> Vec<String> {
    let (mut blocks, mut block, mut fenced) = (Vec::new(), Vec::new(), false);
    for line in page.lines() {
        if line.starts_with("```") {
            fenced = !fenced;
            blocks.push(std::mem::take(&mut block).join("\n"));
        } else if fenced {
            block.push(line);
        } else if let Some(code) = line.strip_prefix("    ") {
            block.push(code);
        } else if line.is_empty() && !block.is_empty() {
            block.push("");
        } else {
            blocks.push(std::mem::take(&mut block).join("\n"));
        }
    }
    blocks.push(block.join("\n"));
    blocks.retain(|block| !block.trim().is_empty());
    blocks
}

/// The texts in backticks outside blocks of code.
fn inline_code(page: &str) -> impl Iterator<Item = &str> {
    let prose = page.lines().filter(|line| !line.starts_with("    "));
    prose.flat_map(|line| line.split('`').skip(1).step_by(2))
}

/// The rows of all tables of a page, each as its cells, without headings and rulers.
fn rows(page: &str) -> Vec<Vec<&str>> {
    let mut rows = Vec::new();
    for line in page.lines().filter(|line| line.starts_with('|')) {
        if line.starts_with("|---") {
            rows.pop();
        } else {
            rows.push(line.trim_matches('|').split('|').map(str::trim).collect());
        }
    }
    rows
}

#[test]
fn every_policy_in_the_documentation_is_accepted() {
    let mut seen = 0;
    for page in pages() {
        let text = read(&page);
        for block in code_blocks(&text) {
            let first = block.split(['\n', '#']).next().unwrap_or_default().trim_end();
            let is_policy = first.starts_with("interfaces =")
                || (first.starts_with('[') && first.ends_with(']') && block.contains(" = "));
            if !is_policy {
                continue;
            }
            seen += 1;
            // A command may follow the policy in the block.
            let block = block.split("\n$ ").next().unwrap_or_default();
            // A part of a policy lacks what every policy has, and plans and files that other parts define.
            let mut whole = block.to_owned();
            if !block.contains("[source]") {
                whole.push_str("\n[source]\nlimits = [\"5000 packets/s\"]\n");
            }
            if block.contains("plan = \"gold\"") && !block.contains("[plan.gold]") {
                whole.push_str("\n[plan.gold]\nlimits = [\"500/hour\"]\n");
            }
            if let Err(error) = config::parse(&whole, &page) {
                panic!("{page}: a policy that is not accepted: {error}\n{block}");
            }
        }
    }
    assert!(seen >= 26, "{seen} policies were found");
}

#[test]
fn the_tests_that_notice_the_19_faults_are_there() {
    let page = read("docs/decisions/0048-tests-that-bite.md");
    let table = page.split("| fault | put into | noticed by |").nth(1).expect("the table");
    let table = table.split("\n\n").next().unwrap_or_default();
    let sources = sources();
    let mut seen = 0;
    for test in inline_code(table).filter(|code| code.contains("::tests::")) {
        let (modules, name) = test.rsplit_once("::").expect("a path");
        let of_test = |(module, text): &(String, String)| {
            format!("{modules}::").starts_with(&format!("{module}::"))
                && text.contains(&format!("fn {name}("))
        };
        assert!(sources.iter().any(of_test), "the page names the test {test}, and the code does not have it");
        seen += 1;
    }
    assert_eq!((table.lines().filter(|line| line.starts_with("| ")).count(), seen), (19, 20));
}

/// The modules of the product and their texts, tests included; a file `mod.rs` is the module of its folder.
fn sources() -> Vec<(String, String)> {
    let mut sources = Vec::new();
    for package in ["common", "ebpf", "user"] {
        let mut folders = vec![(root().join(format!("ratelimit-{package}/src")), Vec::new())];
        while let Some((folder, modules)) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                let name = path.file_stem().unwrap().to_string_lossy().into_owned();
                let mut below: Vec<String> = modules.clone();
                if name != "mod" {
                    below.push(name);
                }
                if path.is_dir() {
                    folders.push((path, below));
                } else if path.extension().is_some_and(|extension| extension == "rs") {
                    sources.push((below.join("::"), fs::read_to_string(path).unwrap()));
                }
            }
        }
    }
    sources
}

/// The words of a command as a shell would split them, up to a comment.
fn shell_words(command: &str) -> Vec<String> {
    let (mut words, mut word, mut quoted, mut started) = (Vec::new(), String::new(), false, false);
    for c in command.chars() {
        match c {
            '"' => (quoted, started) = (!quoted, true),
            '#' if !quoted && word.is_empty() => break,
            ' ' if !quoted => {
                if started || !word.is_empty() {
                    words.push(std::mem::take(&mut word));
                }
                started = false;
            }
            _ => word.push(c),
        }
    }
    if started || !word.is_empty() {
        words.push(word);
    }
    words
}

/// Returns what the command line does not understand of a command. A part of a command, in the middle of a sentence, may lack required arguments.
fn mistake(page: &str, command: &str, is_part: bool) -> Option<String> {
    let example = command
        .replace("ADDRESS", "203.0.113.7")
        .replace("SHELL", "bash")
        .replace("CIDR", "203.0.113.0/24")
        .replace("REASON", "limit_syns")
        .replace(['[', ']'], "")
        .replace(" N", " 5");
    let words = shell_words(example.trim_end_matches(" &"));
    // Of words that may stand in one place, the first stands for all.
    let first = |word: &String| {
        let first = word.split('|').next().filter(|first| !first.is_empty());
        first.unwrap_or(word).to_owned()
    };
    let words: Vec<String> = words.iter().map(first).collect();
    let words =
        words.iter().map(String::as_str).take_while(|word| !["|", ">"].contains(word)).collect::<Vec<_>>();
    let (kind, message) = cli::understand(&words).err()?;
    let incomplete = [ErrorKind::MissingRequiredArgument, ErrorKind::MissingSubcommand];
    let shows_help = [
        ErrorKind::DisplayHelp,
        ErrorKind::DisplayVersion,
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand,
    ];
    // Options in brackets may exclude each other.
    let excludes = command.contains('[') && kind == ErrorKind::ArgumentConflict;
    // A sentence may name an option without its value.
    let lacks_value = message.contains("a value is required for");
    let lacks = excludes || lacks_value || incomplete.contains(&kind);
    let fine = shows_help.contains(&kind) || (is_part && lacks);
    (!fine).then(|| format!("{page}: `{command}`: {message}"))
}

#[test]
fn every_command_in_the_documentation_is_one_that_the_command_line_has() {
    let (mut seen, mut mistakes) = (0, Vec::new());
    for page in pages().iter().filter(|page| !page.starts_with("docs/decisions/")) {
        let text = read(page);
        for block in code_blocks(&text) {
            for line in block.lines() {
                let line = line.strip_prefix("$ ").or(line.strip_prefix("sudo ")).unwrap_or(line);
                if line.starts_with("ratelimit ") {
                    mistakes.extend(mistake(page, line, false));
                    seen += 1;
                }
            }
        }
        for code in inline_code(&text) {
            let code = code.strip_prefix("sudo ").unwrap_or(code).replace("\\|", "|");
            let is_verb =
                code.contains(' ') && has_verb(&code) && !OTHERS.iter().any(|other| code.starts_with(other));
            let whole = if is_verb { format!("ratelimit {code}") } else { code };
            if whole.starts_with("ratelimit ") && !whole.contains("VERB") {
                mistakes.extend(mistake(page, &whole, true));
                seen += 1;
            }
        }
    }
    assert!(mistakes.is_empty(), "{}", mistakes.join("\n"));
    assert!(seen >= 100, "{seen} commands were found");
}

/// What begins with a verb's name and is none of its commands: a message of the log, and a key of the policy.
const OTHERS: [&str; 2] = ["limit rate over", "known ="];

/// Whether a text begins with a verb, as sentences name one without the program before it.
fn has_verb(code: &str) -> bool {
    let verb = code.split(' ').next().unwrap_or_default();
    verb.starts_with(|c: char| c.is_ascii_lowercase())
        && !matches!(cli::understand(&["ratelimit", verb]), Err((ErrorKind::InvalidSubcommand, _)))
}

/// The anchor of a heading in a link, by GitHub's rule.
fn anchor(heading: &str) -> String {
    let kept = heading.to_lowercase();
    kept.chars()
        .filter(|c| c.is_alphanumeric() || "-_ ".contains(*c))
        .map(|c| if c == ' ' { '-' } else { c })
        .collect()
}

#[test]
fn every_link_in_the_documentation_leads_somewhere() {
    let mut seen = 0;
    for page in pages() {
        let text = read(&page);
        let folder = Path::new(&page).parent().unwrap();
        for target in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            if target.starts_with("http") {
                continue;
            }
            seen += 1;
            let (file, heading) = target.split_once('#').unwrap_or((target, ""));
            let path = if file.is_empty() { root().join(&page) } else { root().join(folder).join(file) };
            assert!(path.exists(), "{page}: {target} is not there");
            if !heading.is_empty() {
                let text = fs::read_to_string(&path).unwrap();
                let mut headings = text.lines().filter(|line| line.starts_with('#'));
                assert!(
                    headings.any(|line| anchor(line.trim_start_matches(['#', ' '])) == heading),
                    "{page}: {target}: no such heading"
                );
            }
        }
    }
    assert!(seen >= 150, "{seen} links were found");
}

#[test]
fn the_page_of_reasons_has_each_of_them_once_with_its_verdict() {
    let page = read("docs/reasons.md");
    let rows = rows(&page);
    let documented: Vec<(&str, &str)> =
        rows.iter().filter(|row| row.len() == 4).map(|row| (row[0].trim_matches('`'), row[1])).collect();
    let expected: Vec<_> =
        Reason::ALL.iter().map(|reason| (reason.name(), reason.verdict().name())).collect();
    assert_eq!(documented, expected);
}

/// The names of metrics in the code, where they are written as whole strings.
fn metrics_in_code() -> BTreeSet<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/metrics");
    let texts = fs::read_dir(folder).unwrap().map(|entry| fs::read_to_string(entry.unwrap().path()).unwrap());
    let names = texts.flat_map(|text| {
        text.split('"')
            .skip(1)
            .step_by(2)
            .map(str::to_owned)
            .filter(|text| is_metric(text))
            .collect::<Vec<_>>()
    });
    names.collect()
}

fn is_metric(text: &str) -> bool {
    text.starts_with("ratelimit_") && text.chars().all(|c| c.is_ascii_lowercase() || c == '_')
}

#[test]
fn the_page_of_metrics_has_each_of_them_once_and_no_other() {
    let page = read("docs/metrics.md");
    let documented: Vec<String> = rows(&page)
        .iter()
        .map(|row| row[0].trim_matches('`').to_owned())
        .filter(|name| is_metric(name))
        .collect();
    let unique: BTreeSet<_> = documented.iter().cloned().collect();
    assert_eq!(unique.len(), documented.len(), "a metric has two rows");
    assert_eq!(unique, metrics_in_code());
    assert!(unique.len() > 40);
}

#[test]
fn dashboard_and_alert_rules_name_metrics_that_exist() {
    let known = metrics_in_code();
    let mut seen = BTreeSet::new();
    for file in [
        "packaging/grafana/ratelimit.json",
        "packaging/prometheus/alerts.yml",
        "packaging/prometheus/alerts_test.yml",
    ] {
        let text = read(file);
        for name in text.split(|c: char| !(c.is_ascii_lowercase() || c == '_')).filter(|name| is_metric(name))
        {
            // A query names the parts of a histogram.
            let whole = name.strip_suffix("_bucket").unwrap_or(name);
            assert!(known.contains(whole), "{file}: there is no metric {name}");
            seen.insert(whole.to_owned());
        }
    }
    assert!(seen.len() >= 20, "{seen:?}");
}

#[test]
fn metrics_that_other_pages_speak_of_exist() {
    let names = metrics_in_code();
    for page in pages().iter().filter(|page| !page.starts_with("docs/decisions/")) {
        let text = read(page);
        for code in inline_code(&text) {
            let name = code.split(['{', ' ']).next().unwrap_or_default();
            assert!(!is_metric(name) || name.ends_with('_') || names.contains(name), "{page}: {name}");
        }
    }
}

#[test]
fn the_readme_is_short_and_its_numbers_are_those_that_the_benchmark_wrote() {
    let readme = read("README.md");
    let lines = readme.lines().count();
    assert!(lines < README_LINES, "{lines} lines");
    for command in ["    cargo xtask run", "    cargo xtask test"] {
        assert!(readme.lines().any(|line| line.starts_with(command)), "{command} is missing");
    }
    let report = read("docs/performance/packets.txt");
    let measured = readme.split("## Measured").nth(1).and_then(|rest| rest.split("\n## ").next()).unwrap();
    let found: Vec<_> = rows(measured).into_iter().filter(|row| !row[0].is_empty()).collect();
    assert!(found.len() >= 3, "{found:?}");
    let table: Vec<Vec<&str>> = report
        .lines()
        .skip_while(|line| !line.contains("generator and receiver on one core"))
        .skip(1)
        .take_while(|line| !line.is_empty())
        .map(|line| line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect())
        .collect();
    // The first line of the table has cases instead of a contestant.
    let column = |case: &str| table[0].iter().position(|head| *head == case).unwrap() + 1;
    let columns = ["1 source", "all of IPv4", "65 k heavy"].map(column);
    for row in found {
        let line = table.iter().find(|line| line[0] == row[0]);
        let line = line.unwrap_or_else(|| panic!("{} is not in the report", row[0]));
        assert_eq!(row[1..], columns.map(|at| line[at]), "{}", row[0]);
    }
    let machine = report.lines().next().unwrap();
    let date = machine.rsplit(", ").next().unwrap();
    for fact in ["2 CPUs", "Linux 6.18.44", date] {
        assert!(measured.contains(fact) && machine.contains(fact), "{fact}: {machine}");
    }
}

#[test]
fn the_demonstration_in_the_readme_is_what_it_printed() {
    let (readme, printed) = (read("README.md"), read("docs/performance/demonstration.txt"));
    let printed: BTreeSet<&str> = printed.lines().map(str::trim).collect();
    let shown = code_blocks(&readme).into_iter().find(|block| block.starts_with("attack ")).unwrap();
    for line in shown.lines().map(str::trim) {
        assert!(printed.contains(line), "the demonstration did not print: {line}");
    }
    let policy = code_blocks(&readme).into_iter().find(|block| block.starts_with("interfaces =")).unwrap();
    let limits = policy.split_once("\n\n").unwrap().1;
    assert!(read("xtask/src/demo/policy.rs").contains(limits), "the demonstration has another policy");
}

#[test]
fn tables_of_the_page_about_performance_are_in_the_report_of_the_benchmark() {
    let page = read("docs/performance.md");
    let mut quotations = page.split("```text\n").skip(1).filter_map(|rest| rest.split("```").next());
    for name in ["packets", "requests"] {
        let (report, quoted) = (read(&format!("docs/performance/{name}.txt")), quotations.next().unwrap());
        for line in quoted.lines().filter(|line| !line.is_empty()) {
            assert!(
                report.lines().any(|reported| reported == line),
                "{name}: the benchmark did not write: {line}"
            );
        }
        assert!(quoted.contains(".."), "{name}: no spreads are quoted");
    }
}

#[test]
fn files_that_contributing_names_exist() {
    let page = read("CONTRIBUTING.md");
    let mut seen = 0;
    for row in rows(&page) {
        for file in row[0].split('`').skip(1).step_by(2) {
            // A name with capital letters stands for a file that is to be added.
            if file.contains('/') && !file.chars().any(|c| c.is_ascii_uppercase()) {
                let found = [root().join(file), root().join("ratelimit-user/src").join(file)];
                assert!(found.iter().any(|path| path.exists()), "{file} is not there");
                seen += 1;
            }
        }
    }
    assert!(seen >= 15, "{seen} files were found");
}

/// Headings of CONTRIBUTING.md, each with words that occur in every file that an addition of the kind touches.
const ADDITIONS: [(&str, &[&str]); 8] = [
    ("A policy key", &["end_after"]),
    ("A policy key that more than one part obeys", &["new_sources_per_cpu"]),
    ("A verb", &["Rollback"]),
    ("A metric", &["drop_reports_lost", "ratelimit_drop_reports_lost_total"]),
    ("A request algorithm", &["SlidingLog", "Counting for Log"]),
    ("An L4 protocol", &["Transport::UDP", "Protocol::Udp", "IpProto::Udp"]),
    ("A reason", &["VlanDepth"]),
    ("A store", &["RedisLink"]),
];

/// Additions that touch few files: the heading, and the most files that may know the thing.
const FEW_FILES: [(&str, usize); 4] =
    [("A verb", 4), ("A metric", 4), ("A request algorithm", 3), ("A store", 3)];

/// The Rust files of the product without tests, by their names in CONTRIBUTING.md, with their texts.
fn product() -> Vec<(String, String)> {
    let mut product = Vec::new();
    let mut folders: Vec<String> =
        ["common", "ebpf", "user"].map(|name| format!("ratelimit-{name}/src")).into();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(root().join(&folder)).unwrap() {
            let name = format!("{folder}/{}", entry.unwrap().file_name().to_string_lossy());
            let is_test = ["tests", "tests.rs", "documentation.rs"].iter().any(|end| name.ends_with(end));
            if root().join(&name).is_dir() && !is_test {
                folders.push(name);
            } else if name.ends_with(".rs") && !is_test {
                let text = read(&name);
                let code = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default().to_owned();
                product.push((name.trim_start_matches("ratelimit-user/src/").to_owned(), code));
            }
        }
    }
    product
}

/// Whether a text has a word that is not a part of a longer one.
fn has_word(text: &str, word: &str) -> bool {
    let is_letter = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(word)
        .any(|(at, _)| !text[..at].ends_with(is_letter) && !text[at + word.len()..].starts_with(is_letter))
}

#[test]
fn the_files_of_each_addition_are_all_listed() {
    let (page, product) = (read("CONTRIBUTING.md"), product());
    for (heading, words) in ADDITIONS {
        let section = page.split("### ").find(|section| section.starts_with(&format!("{heading}\n")));
        let section = section.unwrap_or_else(|| panic!("CONTRIBUTING.md has no section {heading:?}"));
        let rows = section.lines().filter(|line| line.starts_with('|'));
        let listed: BTreeSet<&str> = rows
            .flat_map(|row| row.split('`').skip(1).step_by(2))
            .filter(|name| name.ends_with(".rs"))
            .collect();
        let touched: BTreeSet<&str> = product
            .iter()
            .filter(|(_, text)| words.iter().any(|word| has_word(text, word)))
            .map(|(name, _)| name.as_str())
            .collect();
        assert!(!touched.is_empty(), "{words:?} is nowhere");
        let few = FEW_FILES.iter().find(|(name, _)| *name == heading).map_or(usize::MAX, |(_, few)| *few);
        assert!(touched.len() <= few, "{heading}: more than {few} files know {words:?}: {touched:?}");
        let missing: Vec<&&str> = touched.difference(&listed).collect();
        assert!(
            missing.is_empty(),
            "{heading}: {missing:?} know {words:?}, and CONTRIBUTING.md does not say so"
        );
        let absent: Vec<&&str> =
            listed.iter().filter(|name| !product.iter().any(|(known, _)| known == *name)).collect();
        assert!(absent.is_empty(), "{heading}: CONTRIBUTING.md names {absent:?}, which do not exist");
    }
}

/// Keys that one part of the product uses: the detector of attacks, or the code that makes socket files.
const PLAIN_KEYS: [&str; 3] = ["end_after", "begin_requests", "socket_group"];

#[test]
fn a_plain_policy_key_touches_three_files() {
    let product = product();
    for key in PLAIN_KEYS {
        let touched: Vec<&str> =
            product.iter().filter(|(_, text)| has_word(text, key)).map(|(name, _)| name.as_str()).collect();
        let in_folder = |folder: &str| touched.iter().filter(|name| name.starts_with(folder)).count();
        assert_eq!(
            (in_folder("config/"), in_folder("policy/"), touched.len()),
            (1, 1, 3),
            "{key}: {touched:?}"
        );
    }
}
