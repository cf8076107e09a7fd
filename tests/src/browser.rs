//! A real browser without a screen, spoken to over its own protocol (Chrome DevTools) through a pair of pipes.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    time::{Duration, Instant},
};

use serde_json::{Value, json};

/// How long anything may take that a test waits for: a browser has a lot to start beside two busy loops.
const PATIENCE: Duration = Duration::from_secs(60);

/// How often a page is loaded before it is given up.
const MOST_LOADS: usize = 5;

/// The name of the browser's program in Debian.
pub const PROGRAM: &str = "chromium-headless-shell";

/// One page in a browser of its own. Both end with the value.
#[derive(Debug)]
pub struct Browser {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    next: u64,
    session: Option<String>,
    /// What the page has complained about so far.
    pub complaints: Vec<String>,
}

impl Browser {
    /// Starts a browser where `command` runs a shell, with a page that is empty.
    pub fn start(mut command: Command, directory: &Path) -> Self {
        // The browser reads orders from its descriptor 3 and answers on 4.
        let script = format!(
            "exec {PROGRAM} --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --hide-scrollbars --no-first-run \
             --user-data-dir=\"$0\" --remote-debugging-pipe 3<&0 4>&1 0</dev/null 1>/dev/null 2>/dev/null"
        );
        command.args(["-c", &script]).arg(directory.join("browser")).env("HOME", directory);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("start a browser");
        let to = child.stdin.take().expect("a pipe to it");
        let from = BufReader::new(child.stdout.take().expect("a pipe from it"));
        let mut browser = Self { child, to, from, next: 0, session: None, complaints: Vec::new() };
        let page = browser.call("Target.createTarget", &json!({ "url": "about:blank" }));
        let attach = json!({ "targetId": page["targetId"], "flatten": true });
        let attached = browser.call("Target.attachToTarget", &attach);
        browser.session = attached["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Log"] {
            browser.call(&format!("{domain}.enable"), &json!({}));
        }
        browser
    }

    /// Gives the page a size and a colour scheme.
    pub fn look(&mut self, width: u32, height: u32, scheme: &str) {
        let size = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        self.call("Emulation.setDeviceMetricsOverride", &size);
        let features = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        self.call("Emulation.setEmulatedMedia", &features);
    }

    /// Goes to a page. A browser gives up what it is loading when an interface of its machine gets an address, as those of a test do in their first seconds:
    /// then the page is loaded again.
    pub fn open(&mut self, url: &str) {
        for _ in 0..MOST_LOADS {
            let answer = self.call("Page.navigate", &json!({ "url": url }));
            let has_changed = |told: &str| told.contains("ERR_NETWORK_CHANGED");
            if answer["errorText"].as_str().is_some_and(has_changed) {
                continue;
            }
            assert!(answer.get("errorText").is_none(), "{url}: {answer}");
            self.wait_for("document.readyState === 'complete'");
            let before = self.complaints.len();
            self.complaints.retain(|complaint| !has_changed(complaint));
            if self.complaints.len() == before {
                return;
            }
        }
        panic!("{url}: the interfaces of this machine changed {MOST_LOADS} times while it was loaded");
    }

    /// What an expression is.
    pub fn evaluate(&mut self, expression: &str) -> Value {
        let asked = json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        let answer = self.call("Runtime.evaluate", &asked);
        assert!(answer.get("exceptionDetails").is_none(), "{expression}: {answer}");
        answer["result"]["value"].clone()
    }

    /// Waits until an expression is neither false nor nothing, and returns it.
    pub fn wait_for(&mut self, expression: &str) -> Value {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let value = self.evaluate(expression);
            if !matches!(value, Value::Null | Value::Bool(false)) && value != "" && value != 0 {
                return value;
            }
            if Instant::now() > deadline {
                let page = self.evaluate("document.body.innerText");
                panic!("{expression} stays {value}; complaints: {:?}; the page: {page}", self.complaints);
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Clicks on what a selector finds.
    pub fn click(&mut self, selector: &str) {
        self.wait_for(&format!("!!document.querySelector({selector:?})"));
        self.evaluate(&format!("document.querySelector({selector:?}).click()"));
    }

    /// Types a text where a selector points, and a key behind it.
    pub fn type_into(&mut self, selector: &str, text: &str) {
        self.wait_for(&format!("!!document.querySelector({selector:?})"));
        self.evaluate(&format!(
            "{{ const one = document.querySelector({selector:?}); one.value = ''; one.focus(); }}"
        ));
        self.call("Input.insertText", &json!({ "text": text }));
    }

    /// Presses a key that has a name, such as `Enter`.
    pub fn press(&mut self, key: &str) {
        let text = if key == "Enter" { "\r" } else { "" };
        let code = match key {
            "Enter" => 13,
            "Tab" => 9,
            _ => 0,
        };
        let event = |kind: &str| json!({ "type": kind, "key": key, "code": key, "text": text, "windowsVirtualKeyCode": code });
        self.call("Input.dispatchKeyEvent", &event(if text.is_empty() { "rawKeyDown" } else { "keyDown" }));
        self.call("Input.dispatchKeyEvent", &event("keyUp"));
    }

    /// A picture of what is to be seen, as PNG in base64.
    pub fn screenshot(&mut self) -> String {
        let answer = self.call("Page.captureScreenshot", &json!({ "format": "png" }));
        answer["data"].as_str().expect("a picture").to_owned()
    }

    fn call(&mut self, method: &str, params: &Value) -> Value {
        self.next += 1;
        let id = self.next;
        let mut message = json!({ "id": id, "method": method, "params": params });
        if let Some(session) = &self.session {
            message["sessionId"] = session.as_str().into();
        }
        let mut bytes = serde_json::to_vec(&message).expect("JSON");
        bytes.push(0);
        self.to.write_all(&bytes).expect("the browser runs");
        loop {
            let mut bytes = Vec::new();
            self.from.read_until(0, &mut bytes).expect("the browser runs");
            assert_eq!(bytes.pop(), Some(0), "the browser has ended; is {PROGRAM} installed?");
            let mut message: Value = serde_json::from_slice(&bytes).expect("JSON");
            if message["id"] == id {
                assert!(message.get("error").is_none(), "{method}: {message}");
                return message["result"].take();
            }
            self.hear(&message);
        }
    }

    /// Remembers what is no answer but a complaint.
    fn hear(&mut self, message: &Value) {
        let params = &message["params"];
        let complaint = match message["method"].as_str() {
            Some("Runtime.exceptionThrown") => Some(&params["exceptionDetails"]),
            Some("Runtime.consoleAPICalled") => Some(&params["args"]),
            Some("Log.entryAdded") => Some(&params["entry"]),
            _ => None,
        };
        self.complaints.extend(complaint.map(ToString::to_string));
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _gone = self.child.wait();
    }
}
