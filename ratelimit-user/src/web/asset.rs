//! The files of the page, as they are in the program.

/// A file of the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asset {
    /// The path of the URL.
    pub path: &'static str,
    /// The value of the `Content-Type` field.
    pub kind: &'static str,
    /// The body of the answer.
    pub text: &'static str,
}

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const SVG: &str = "image/svg+xml";

/// The path of the page itself.
pub const PAGE: &str = "/";
/// The beginning of all other paths of the dashboard.
pub const BELOW: &str = "/dashboard/";

macro_rules! assets {
    ($($path:literal $kind:ident $file:literal),* $(,)?) => {
        /// All files of the page.
        pub const ASSETS: &[Asset] = &[$(Asset { path: $path, kind: $kind, text: include_str!(concat!("page/", $file)) }),*];
    };
}

assets! {
    "/" HTML "index.html",
    "/dashboard/style.css" CSS "style.css",
    "/dashboard/icon.svg" SVG "icon.svg",
    "/dashboard/main.js" SCRIPT "main.js",
    "/dashboard/attacks.js" SCRIPT "attacks.js",
    "/dashboard/chart.js" SCRIPT "chart.js",
    "/dashboard/explain.js" SCRIPT "explain.js",
    "/dashboard/format.js" SCRIPT "format.js",
    "/dashboard/element.js" SCRIPT "element.js",
    "/dashboard/orders.js" SCRIPT "orders.js",
    "/dashboard/panels.js" SCRIPT "panels.js",
    "/dashboard/stream.js" SCRIPT "stream.js",
}

impl Asset {
    /// The file at a path, if there is one.
    pub fn at(path: &str) -> Option<Self> {
        ASSETS.iter().find(|asset| asset.path == path).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All files together, in bytes.
    const MAX_PAGE: usize = 100 * 1024;

    #[test]
    fn the_page_is_small_and_asks_nobody_else() {
        let size: usize = ASSETS.iter().map(|asset| asset.text.len()).sum();
        assert!(size <= MAX_PAGE, "the page has {size} bytes");
        for Asset { path, text, .. } in ASSETS {
            // The name of a language is no address that anybody asks.
            let text = text.replace("http://www.w3.org/2000/svg", "");
            assert!(!text.contains("http://") && !text.contains("https://"), "{path} names another site");
        }
    }

    #[test]
    fn everything_that_a_file_names_is_there_and_nothing_stands_in_the_page_itself() {
        let mut named = vec![PAGE.to_owned()];
        for Asset { path, text, .. } in ASSETS {
            let local = text.split(['"', '\'']).filter(|word| word.starts_with(BELOW));
            named.extend(
                local
                    .filter(|word| word.ends_with("js") || word.ends_with("css") || word.ends_with("svg"))
                    .map(str::to_owned),
            );
            let modules =
                text.split(['"', '\'']).filter(|word| word.starts_with("./") && word.ends_with(".js"));
            named.extend(modules.map(|word| word.replacen("./", BELOW, 1)));
            // The page's own content policy forbids these, so they would not work.
            for inline in ["style=\"", "onclick=", "onload=", "<style", "innerHTML", "eval("] {
                assert!(!text.contains(inline), "{path} has {inline}");
            }
        }
        for asset in ASSETS {
            assert!(named.iter().any(|name| name == asset.path), "{} is asked for by nobody", asset.path);
        }
        for name in named {
            assert!(Asset::at(&name).is_some(), "{name} is not there");
        }
    }
}
