//! A headless Chromium under the DevTools protocol, over the pipe that `--remote-debugging-pipe`
//! offers: messages are JSON, each ended by a NUL byte, on file descriptors 3 (to Chromium) and 4
//! (from it).

use std::{
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc::{Receiver, channel},
    time::{Duration, Instant},
};

use serde_json::{Value, json};

/// Longer than any answer takes on a loaded machine; only a hang reaches it.
const PATIENCE: Duration = Duration::from_secs(120);

/// Nothing that starts by itself, nothing that calls home.
const FLAGS: &str = "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --hide-scrollbars \
    --disable-background-networking --disable-component-update --disable-sync --disable-dev-shm-usage \
    --remote-debugging-pipe";

/// One browser with one page.
pub struct Browser {
    process: Child,
    input: ChildStdin,
    messages: Receiver<Value>,
    events: Vec<Value>,
    session: Option<String>,
    last_id: u64,
    profile: PathBuf,
}

impl Browser {
    /// Starts Chromium with a fresh profile below `directory`; panics, saying what to install, when
    /// there is none.
    pub fn start(directory: &Path) -> Browser {
        let profile = directory.join(format!("chromium-profile-{}", std::process::id()));
        // The shell moves stdin and stdout to the descriptors that the pipe protocol uses.
        let mut process = Command::new("sh")
            .args(["-c", &format!("exec chromium {FLAGS} \"--user-data-dir=$0\" about:blank 3<&0 4>&1 </dev/null >/dev/null 2>&1")])
            .arg(&profile)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("sh starts");
        let input = process.stdin.take().expect("piped");
        let output = BufReader::new(process.stdout.take().expect("piped"));
        let (sender, messages) = channel();
        std::thread::spawn(move || {
            for message in output.split(0).map_while(Result::ok) {
                let value = serde_json::from_slice(&message).expect("Chromium speaks JSON");
                if sender.send(value).is_err() {
                    break;
                }
            }
        });
        let mut browser = Browser {
            process,
            input,
            messages,
            events: Vec::new(),
            session: None,
            last_id: 0,
            profile,
        };
        browser.attach();
        browser
    }

    fn attach(&mut self) {
        let targets = self.call("Target.getTargets", json!({}));
        let pages = targets["targetInfos"].as_array().expect("an array");
        let page = pages
            .iter()
            .find(|t| t["type"] == "page")
            .expect("Chromium has opened a page");
        let session = self.call(
            "Target.attachToTarget",
            json!({"targetId": page["targetId"], "flatten": true}),
        );
        self.session = session["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Log", "Network"] {
            self.call(&format!("{domain}.enable"), json!({}));
        }
    }

    /// Sends a command and waits for its answer; events that come in between are kept.
    pub fn call(&mut self, method: &str, params: Value) -> Value {
        self.last_id += 1;
        let mut message = json!({"id": self.last_id, "method": method, "params": params});
        if let Some(session) = &self.session {
            message["sessionId"] = session.clone().into();
        }
        self.input
            .write_all(format!("{message}\0").as_bytes())
            .expect(NOT_INSTALLED);
        loop {
            let answer = self.messages.recv_timeout(PATIENCE).expect(NOT_INSTALLED);
            if answer["id"] == self.last_id {
                assert!(answer["error"].is_null(), "{method}: {}", answer["error"]);
                return answer["result"].clone();
            }
            self.events.push(answer);
        }
    }

    /// Opens a file and waits until it has loaded.
    pub fn open(&mut self, file: &Path) {
        self.events.clear();
        self.call(
            "Page.navigate",
            json!({"url": format!("file://{}", file.display())}),
        );
        self.wait_for("document.readyState === 'complete'");
    }

    /// The value of a JavaScript expression; panics when it throws.
    pub fn evaluate(&mut self, expression: &str) -> Value {
        let params = json!({"expression": expression, "returnByValue": true, "awaitPromise": true, "userGesture": true});
        let answer = self.call("Runtime.evaluate", params);
        assert!(
            answer["exceptionDetails"].is_null(),
            "{expression}: {}",
            answer["exceptionDetails"]
        );
        answer["result"]["value"].clone()
    }

    /// Waits until a JavaScript expression is true.
    pub fn wait_for(&mut self, condition: &str) {
        let start = Instant::now();
        while self.evaluate(condition) != json!(true) {
            assert!(start.elapsed() < PATIENCE, "never true: {condition}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Sets the size of the window and light or dark.
    pub fn look(&mut self, width: u32, height: u32, scheme: &str) {
        let size =
            json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        self.call("Emulation.setDeviceMetricsOverride", size);
        let media = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        self.call("Emulation.setEmulatedMedia", media);
    }

    /// Presses, moves and releases the left mouse button, as a person who drags.
    pub fn drag(&mut self, from: (f64, f64), to: (f64, f64)) {
        let at = |share: f64| {
            (
                from.0 + (to.0 - from.0) * share,
                from.1 + (to.1 - from.1) * share,
            )
        };
        self.mouse("mouseMoved", from, "none");
        self.mouse("mousePressed", from, "left");
        for step in 1..=5 {
            self.mouse("mouseMoved", at(f64::from(step) / 5.0), "left");
        }
        self.mouse("mouseReleased", to, "left");
    }

    /// Presses the left mouse button twice.
    pub fn double_click(&mut self, (x, y): (f64, f64)) {
        for count in [1, 2] {
            for kind in ["mousePressed", "mouseReleased"] {
                let params =
                    json!({"type": kind, "x": x, "y": y, "button": "left", "clickCount": count});
                self.call("Input.dispatchMouseEvent", params);
            }
        }
    }

    /// One mouse event in page coordinates of the window.
    pub fn mouse(&mut self, kind: &str, (x, y): (f64, f64), button: &str) {
        let held = u8::from(button == "left");
        let params = json!({"type": kind, "x": x, "y": y, "button": button, "buttons": held, "clickCount": 1});
        self.call("Input.dispatchMouseEvent", params);
    }

    /// Everything that the console, the log or an exception said since the page was opened.
    pub fn complaints(&mut self) -> Vec<String> {
        self.evaluate("1");
        let loud = |event: &&Value| {
            [
                "Runtime.consoleAPICalled",
                "Runtime.exceptionThrown",
                "Log.entryAdded",
            ]
            .iter()
            .any(|m| event["method"] == *m)
        };
        self.events
            .iter()
            .filter(loud)
            .map(|event| event["params"].to_string())
            .collect()
    }

    /// Every address that the page asked for since it was opened.
    pub fn requests(&self) -> Vec<String> {
        let sent = self
            .events
            .iter()
            .filter(|event| event["method"] == "Network.requestWillBeSent");
        sent.map(|event| {
            event["params"]["request"]["url"]
                .as_str()
                .unwrap_or_default()
                .to_owned()
        })
        .collect()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Chromium ends when asked; killing it would leave its helpers.
        let _ = write!(
            self.input,
            "{}\0",
            json!({"id": 0, "method": "Browser.close"})
        );
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.profile);
    }
}

const NOT_INSTALLED: &str = "Chromium answers; without it: apt-get install chromium";
