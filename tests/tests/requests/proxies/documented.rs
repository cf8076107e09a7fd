//! The configurations of a page in docs/integrations, with ports of a test.

use std::{net::SocketAddr, path::Path};

/// One page of `docs/integrations`.
pub(crate) struct Documented {
    blocks: Vec<(String, String)>,
}

impl Documented {
    /// Reads a page of `docs/integrations`.
    pub(crate) fn read(name: &str) -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../docs/integrations/{name}.md"));
        let text =
            std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let fenced = text.split("```").skip(1).step_by(2);
        let block = |block: &str| {
            let (kind, text) = block.split_once('\n').expect("a kind of block");
            (kind.to_owned(), text.to_owned())
        };
        Self { blocks: fenced.map(block).collect() }
    }

    /// A block, by its kind and its number among those.
    pub(crate) fn block(&self, kind: &str, number: usize) -> &str {
        let mut all = self.blocks.iter().filter(|(known, _)| known == kind);
        all.nth(number).map(|(_, text)| text.as_str()).unwrap_or_else(|| panic!("no {kind} block {number}"))
    }

    /// The policy without `[listen]`: the harness has ports of its own.
    pub(crate) fn policy(&self) -> &str {
        let policy = self.block("toml", 0);
        policy.split_once("[listen]").map_or(policy, |(policy, _)| policy)
    }
}

/// A configuration whose port 80 is another; whatever lies in system directories lies beside it.
pub(crate) fn with_port(kind: &str, text: &str, proxy: SocketAddr) -> String {
    let replace = |old: &str, new: String| {
        assert!(text.contains(old), "{old} is not in {text}");
        text.replacen(old, &new, 1)
    };
    match kind {
        "nginx" => {
            let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
                .map(|of| format!("    {of}_temp_path {of};\n"))
                .concat();
            let text = replace("listen 80;", format!("listen {proxy};"));
            text.replacen("http {\n", &format!("http {{\n    access_log off;\n{temporary}"), 1)
        }
        "caddyfile" => {
            let site = format!("http://:{} {{\n\tbind {}", proxy.port(), proxy.ip());
            format!("{{\n\tadmin off\n}}\n{}", replace(":80 {", site))
        }
        _ if text.contains("entryPoints:\n") => replace("\":80\"", format!("\"{proxy}\"")),
        _ => text.to_owned(),
    }
}
