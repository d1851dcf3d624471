//! The few shell commands that conformance suites use to set up a kernel.

/// The meaning of a command to an endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// Nothing here: caches, offload, cleaning up.
    Nothing,
    /// The usual defaults of the public suites. Google's, which are in a folder `common`, let every
    /// listener take data from SYNs.
    Defaults {
        google: bool,
    },
    /// A queueing discipline, which paces or does not.
    Pace(bool),
    /// Kernel parameters: names with points, and values.
    Set(Vec<(String, String)>),
    /// `ip route … initcwnd N`
    InitialWindow(u8),
    /// `ip link set dev tun0 mtu N`
    Mtu(u16),
    Check(Check),
    Unknown,
}

/// What a command wants of the connection: it checks it, or ends it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Check {
    /// `tcpdrop -s STATE`: connections in this state are gone without a word.
    Drop(String),
    /// `sockstat … | grep -c STATE | grep N`: so many sockets are in this state.
    State(String, u32),
    /// `nstat | grep TcpExt…`: the counter has moved; with `grep -q " N "` by so much.
    Counter(String, Option<u64>),
    /// `ip tcp_metrics flush all`: nothing is known of the peer any more.
    ForgetPeer,
    /// `nstat`: counters count from here.
    Forget,
}

impl Check {
    /// Whether a shell would see the command fail if the connection is otherwise.
    pub fn may_fail(&self) -> bool {
        !matches!(self, Self::ForgetPeer | Self::Forget)
    }
}

/// Looks for sockets that listen.
const LISTENERS: &str = r#"grep " 0A " /proc/net/tcp /proc/net/tcp6"#;

/// Commands one by one, with the number of lines before each.
pub fn commands(script: &str) -> Vec<(usize, String)> {
    let joined = script.replace("\\\n", " \u{b}");
    let mut commands = Vec::new();
    let mut line = 0;
    for row in joined.split('\n') {
        for part in row.split(';').flat_map(|part| part.split("&&")) {
            let command = part.split(" #").next().unwrap_or("").replace('\u{b}', " ");
            let command = command.trim();
            if !command.is_empty() && !command.starts_with('#') {
                commands.push((line, command.to_owned()));
            }
        }
        line += 1 + row.matches('\u{b}').count();
    }
    commands
}

/// `$((15*1024*1024))` as a number; what is no product of numbers stays.
fn expand(command: &str) -> String {
    let Some((before, rest)) = command.split_once("$((") else {
        return command.to_owned();
    };
    let Some((product, after)) = rest.split_once("))") else {
        return command.to_owned();
    };
    let factors = product
        .split('*')
        .map(|factor| factor.trim().parse::<u64>().ok());
    let value = factors
        .reduce(|left, right| left?.checked_mul(right?))
        .flatten();
    match value {
        Some(value) => format!("{before}{value}{}", expand(after)),
        None => command.to_owned(),
    }
}

/// Words of a command; quotes keep blanks together.
fn words(command: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quote = None;
    for char in command.chars() {
        match (quote, char) {
            (None, '"' | '\'') => quote = Some(char),
            (Some(open), _) if open == char => quote = None,
            (None, _) if char.is_whitespace() => words.push(String::new()),
            _ => {
                if let Some(word) = words.last_mut() {
                    word.push(char);
                }
            }
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

/// The meaning of `command`.
pub fn understand(command: &str) -> Meaning {
    if let Some(check) = check(command) {
        return check;
    }
    let words = words(&expand(command));
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let Some((program, arguments)) = words.split_first() else {
        return Meaning::Nothing;
    };
    let google = program.contains("common/");
    let program = program.rsplit('/').next().unwrap_or(program);
    match program {
        "defaults.sh" => Meaning::Defaults { google },
        "sysctl" => parameters(arguments.iter().filter(|word| !word.starts_with('-'))),
        "set_sysctls.py" => parameters(arguments.iter()),
        "echo" => echo(arguments),
        "ip" => ip(arguments),
        "tc" => queue(arguments),
        "ethtool" if arguments.first() == Some(&"-K") => Meaning::Nothing,
        "rm" | "dd" if arguments.iter().any(|word| word.contains("/tmp/")) => Meaning::Nothing,
        "tcpdrop" => match arguments {
            ["-s", state] => Meaning::Check(Check::Drop((*state).to_owned())),
            _ => Meaning::Unknown,
        },
        "true" | ":" | "sync" | "tcpdump" => Meaning::Nothing,
        "pkill" if arguments.last() == Some(&"tcpdump") => Meaning::Nothing,
        _ if program.starts_with("sysctl_restore") => Meaning::Nothing,
        _ => Meaning::Unknown,
    }
}

/// Pipes that look at sockets or counters, and `nstat` alone, which forgets.
fn check(command: &str) -> Option<Meaning> {
    let mut parts = command.split('|').map(str::trim);
    let first = parts.next()?;
    let program = first.split_whitespace().next()?;
    let patterns: Vec<_> = parts.collect();
    match (program, patterns.as_slice()) {
        // A socket that listens, at packetdrill's port.
        ("grep", [_]) if first == LISTENERS => {
            Some(Meaning::Check(Check::State("LISTEN".to_owned(), 1)))
        }
        ("nstat", []) => Some(Meaning::Check(Check::Forget)),
        ("nstat", [grep, rest @ ..]) => {
            let name = grep.split_whitespace().nth(1)?;
            let name = name.strip_prefix("TcpExt")?.to_owned();
            let count = match rest {
                [] => None,
                [number] => Some(number.strip_prefix("grep -q")?.trim_matches([' ', '"'])),
                _ => return None,
            };
            let count = count.map(str::parse).transpose().ok()?;
            Some(Meaning::Check(Check::Counter(name, count)))
        }
        ("sockstat", [.., count, number]) => {
            let state = count.strip_prefix("grep -c ")?.trim().to_owned();
            let number = number.strip_prefix("grep ")?.trim().parse().ok()?;
            Some(Meaning::Check(Check::State(state, number)))
        }
        _ => None,
    }
}

/// `key=value …`, until the output goes somewhere.
fn parameters<'a>(words: impl Iterator<Item = &'a &'a str>) -> Meaning {
    let mut pairs = Vec::new();
    for word in words.take_while(|word| !word.contains('>')) {
        match word.split_once('=') {
            Some((key, value)) => pairs.push((name(key), value.to_owned())),
            None => return Meaning::Unknown,
        }
    }
    Meaning::Set(pairs)
}

/// `echo V > /proc/sys/net/ipv4/x`. Of CUBIC's parameters HyStart's has its default: ACK trains and
/// delays both end slow start.
fn echo(arguments: &[&str]) -> Meaning {
    match arguments {
        ["3", ">", "/sys/module/tcp_cubic/parameters/hystart_detect"] => Meaning::Nothing,
        [value, ">", file] if file.starts_with("/proc/sys/") => {
            Meaning::Set(vec![(name(file), (*value).to_owned())])
        }
        _ => Meaning::Unknown,
    }
}

/// A parameter's name with points, from either form.
fn name(key: &str) -> String {
    key.trim_start_matches("/proc/sys/").replace('/', ".")
}

fn ip(arguments: &[&str]) -> Meaning {
    if arguments.contains(&"tcp_metrics") {
        return Meaning::Check(Check::ForgetPeer);
    }
    if let ["link", "set", "dev", _, "mtu", bytes] = arguments {
        return match bytes.parse() {
            Ok(bytes @ 100..) => Meaning::Mtu(bytes),
            _ => Meaning::Unknown,
        };
    }
    let unknown = [
        "rto_min", "mtu", "advmss", "cwnd", "quickack", "features", "congctl", "window", "initrwnd",
    ];
    let strange = arguments.iter().any(|word| unknown.contains(word));
    let at = arguments.iter().position(|word| *word == "initcwnd");
    let segments = at.and_then(|at| arguments.get(at + 1)?.parse().ok());
    match segments {
        Some(segments @ 1..=64) if !strange => Meaning::InitialWindow(segments),
        _ => Meaning::Unknown,
    }
}

/// `tc qdisc … dev D root KIND`, of the kinds that neither delay nor drop. One with parameters, as
/// `pfifo limit 1`, may do either; without the discipline `fq` nothing paces.
fn queue(arguments: &[&str]) -> Meaning {
    let end = arguments.iter().position(|word| word.contains('>'));
    let arguments = &arguments[..end.unwrap_or(arguments.len())];
    let known = ["fq", "pfifo", "pfifo_fast", "noqueue", "bfifo"];
    match arguments {
        ["qdisc", "add" | "replace", "dev", _, "root", kind] if known.contains(kind) => {
            Meaning::Pace(*kind == "fq")
        }
        ["qdisc", "del" | "delete", "dev", _, "root"] => Meaning::Pace(false),
        ["qdisc", "del" | "delete", "dev", _, "root", kind] if known.contains(kind) => {
            Meaning::Pace(false)
        }
        _ => Meaning::Unknown,
    }
}
