//! Packets: `< S 0:0(0) win 1000 <mss 1460>`, `> . 1:1(0) ack 1`.

use sluicegate_tcp::segment::{ByteCounters, ecn, flags};

use super::{Kind, Parser};
use crate::{
    Step, Stop,
    model::{Action, EcnWanted, Expected},
    packet,
    packet::{FastOpen, Options, Packet},
};

/// Protocols and encapsulations that are no plain TCP.
const OTHERS: [&str; 8] = [
    "icmp", "icmpv6", "udp", "udplite", "gre", "GREv0", "mpls", "ipv6",
];

/// The parts of a packet's line beside the segment itself.
#[derive(Default)]
struct Beside {
    window: Option<u16>,
    any_options: bool,
    any_clock: bool,
    any_seq: bool,
    ecn: Option<EcnWanted>,
    ttl: Option<u8>,
    dscp: Option<u8>,
    /// Something that has a place in the language but none here.
    unknown: Option<String>,
}

impl Parser {
    pub(super) fn packet(&mut self, arrives: bool) -> Step<Action> {
        let line = self.line();
        self.at += 1;
        let mut beside = Beside::default();
        if let Some(icmp) = self.icmp(arrives)? {
            return Ok(icmp);
        }
        self.ip_information(&mut beside)?;
        if let Some(icmp) = self.icmp(arrives)? {
            return Ok(icmp);
        }
        if let Some(skipped) = self.other_protocol() {
            return Ok(Action::Unsupported(skipped));
        }
        self.ports(&mut beside)?;
        let mut packet = Packet::default();
        (packet.flags, packet.ae) = self.flags(&mut beside)?;
        self.numbers(&mut packet, &mut beside)?;
        if self.accept('<') {
            packet.options = self.options(&mut beside)?;
        }
        packet.udp = self.udp()?;
        if self.accept('/') {
            beside.unknown = Some("encapsulation".to_owned());
            while self.peek().is_some() && self.line() == line {
                self.at += 1;
            }
        }
        if self.is_symbol('{') {
            beside.unknown = Some("a packet that is changed at random".to_owned());
            self.skip_past('}');
        }
        if let Some(unknown) = beside.unknown {
            return Ok(Action::Unsupported(unknown));
        }
        if arrives {
            return arriving(line, packet, &beside);
        }
        Ok(Action::Leaves(Expected {
            packet,
            window: beside.window,
            any_options: beside.any_options,
            any_clock: beside.any_clock,
            any_seq: beside.any_seq,
            ecn: beside.ecn.unwrap_or(EcnWanted::Any),
            ttl: beside.ttl,
            dscp: beside.dscp,
        }))
    }

    /// Names what is no TCP segment, and skips to the next event as well as can be told.
    fn other_protocol(&mut self) -> Option<String> {
        let name = match self.peek() {
            Some(Kind::Word(word)) if OTHERS.contains(&word.as_str()) => word.clone(),
            Some(Kind::Word(word)) if word == "ipv4" => "encapsulation".to_owned(),
            _ => return None,
        };
        let line = self.line();
        while self.peek().is_some() && self.line() == line {
            self.at += 1;
        }
        Some(format!("{name} packets"))
    }

    fn skip_past(&mut self, symbol: char) {
        while self.peek().is_some() && !self.accept(symbol) {
            self.at += 1;
        }
    }

    /// `[ect0]`, `(tos 0x2)`, `[ttl 64]`, `[ect0, ttl 64]`
    fn ip_information(&mut self, beside: &mut Beside) -> Step {
        let close = match (self.peek(), self.peek_at(1)) {
            (Some(Kind::Symbol('[')), Some(Kind::Word(_))) => ']',
            (Some(Kind::Symbol('(')), Some(Kind::Word(_))) => ')',
            _ => return Ok(()),
        };
        self.at += 1;
        loop {
            let Some(Kind::Word(word)) = self.peek().cloned() else {
                return self.wrong("an IP header's field");
            };
            self.at += 1;
            if !self.ip_field(&word, beside)? {
                beside.unknown = Some(format!("IP header field {word}"));
                self.skip_past(close);
                return Ok(());
            }
            if !self.accept(',') {
                return self.expect(close);
            }
        }
    }

    /// False for one that is not known.
    fn ip_field(&mut self, word: &str, beside: &mut Beside) -> Step<bool> {
        match word {
            "noecn" => beside.ecn = Some(EcnWanted::Exactly(ecn::NOT_ECT)),
            "ect0" => beside.ecn = Some(EcnWanted::Exactly(ecn::ECT0)),
            "ect1" => beside.ecn = Some(EcnWanted::Exactly(ecn::ECT1)),
            "ce" => beside.ecn = Some(EcnWanted::Exactly(ecn::CE)),
            "ect01" => beside.ecn = Some(EcnWanted::Capable),
            "tos" | "class" => {
                let tos: u8 = self.number()?;
                beside.ecn = Some(EcnWanted::Exactly(tos & 3));
                beside.dscp = Some(tos >> 2);
            }
            "ttl" | "hop_limit" => beside.ttl = Some(self.number()?),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// `8080 > 1234`
    fn ports(&mut self, beside: &mut Beside) -> Step {
        if matches!(self.peek(), Some(Kind::Integer(_))) {
            self.at += 1;
            self.expect('>')?;
            let _: u16 = self.number()?;
            beside.unknown = Some("ports: there is one connection".to_owned());
        }
        Ok(())
    }

    /// Flags, and AccECN's AE. ACE may stand as a number: `P.5`, `P5.`, `.5`.
    fn flags(&mut self, beside: &mut Beside) -> Step<(u8, bool)> {
        if self.accept('-') {
            return Ok((0, false));
        }
        let mut text = String::new();
        if let Some(Kind::Word(word)) = self.peek().cloned() {
            self.at += 1;
            text = word;
        }
        match self.peek().cloned() {
            Some(Kind::Decimal(more)) if more.starts_with('.') => {
                self.at += 1;
                text.push_str(&more);
            }
            _ if self.accept('.') => text.push('.'),
            _ => (),
        }
        if text.is_empty() {
            return self.wrong("flags");
        }
        let (mut bits, mut ae) = (0, false);
        for letter in text.chars() {
            match (packet::flag(letter), letter) {
                (Some(bit), _) => bits |= bit,
                (None, 'A') => ae = true,
                (None, '0'..='7') => {
                    let ace = letter as u8 - b'0';
                    ae |= ace & 4 != 0;
                    bits |= if ace & 2 != 0 { flags::CWR } else { 0 };
                    bits |= if ace & 1 != 0 { flags::ECE } else { 0 };
                }
                _ => beside.unknown = Some(format!("flag {letter}")),
            }
        }
        Ok((bits, ae))
    }

    /// `1:1001(1000) ack 1 win 100 urg 0`
    fn numbers(&mut self, packet: &mut Packet, beside: &mut Beside) -> Step {
        let line = self.line();
        beside.any_seq = self.peek() == Some(&Kind::Ellipsis);
        let mut end = None;
        if beside.any_seq {
            self.at += 1;
        } else {
            packet.seq = self.number()?;
            self.expect(':')?;
            end = Some(self.number()?);
        }
        self.expect('(')?;
        packet.len = self.number()?;
        self.expect(')')?;
        if self.accept('!') && packet.seq != 0 {
            beside.unknown = Some("absolute sequence numbers".to_owned());
        }
        let end = end.unwrap_or(packet.seq.wrapping_add(u32::from(packet.len)));
        if end != packet.seq.wrapping_add(u32::from(packet.len)) {
            return Stop::unsupported(line, "syntax: sequence numbers and length disagree");
        }
        if self.accept_word("ack") {
            packet.ack = self.number()?;
        }
        if self.accept_word("win") {
            packet.window = self.number()?;
            beside.window = Some(packet.window);
        }
        if self.accept_word("urg") {
            packet.urgent = self.number()?;
        }
        Ok(())
    }

    /// `mss 1460,sackOK,...>`
    fn options(&mut self, beside: &mut Beside) -> Step<Options> {
        let mut options = Options::default();
        if self.peek() == Some(&Kind::Ellipsis) {
            self.at += 1;
            beside.any_options = true;
            self.expect('>')?;
            return Ok(options);
        }
        loop {
            self.option(&mut options, beside)?;
            if self.accept('>') {
                return Ok(options);
            }
            self.expect(',')?;
        }
    }

    fn option(&mut self, options: &mut Options, beside: &mut Beside) -> Step {
        let Some(Kind::Word(name)) = self.peek().cloned() else {
            return self.wrong("a TCP option");
        };
        self.at += 1;
        match name.as_str() {
            "nop" | "eol" => (),
            "mss" => options.mss = Some(self.number()?),
            "wscale" => options.wscale = Some(self.number()?),
            "sackOK" => options.sack_ok = true,
            "md5" => {
                self.cookie()?;
                options.signed = true;
            }
            "FO" | "FOEXP" => {
                let experimental = name == "FOEXP";
                let cookie = self.cookie()?;
                options.fast_open = Some(FastOpen {
                    cookie,
                    experimental,
                });
            }
            "sack" => {
                while matches!(self.peek(), Some(Kind::Integer(_))) {
                    let left = self.number()?;
                    self.expect(':')?;
                    options.sack.push((left, self.number()?));
                }
            }
            "ECN" => options.counters = Some(self.counters()?),
            "TS" => {
                let val = self.clock("val", beside)?;
                options.timestamps = Some((val, self.clock("ecr", beside)?));
            }
            other => {
                beside.unknown = Some(format!("TCP option {other}"));
                while self.peek().is_some() && !self.is_symbol(',') && !self.is_symbol('>') {
                    self.at += 1;
                }
            }
        }
        Ok(())
    }

    /// `e1b 1 ceb 0 e0b 1`: the first says in which order they are, and there may be fewer.
    fn counters(&mut self) -> Step<ByteCounters> {
        let ect1_first = self.is_word("e1b");
        let order = ByteCounters::new(ect1_first, &[0; 3]);
        let mut fields: Vec<u32> = Vec::new();
        for (field, _) in order.iter() {
            let name = packet::counter_name(field);
            if !self.is_word(name) {
                break;
            }
            fields.push(self.after(name)?);
        }
        Ok(ByteCounters::new(ect1_first, &fields))
    }

    /// Hexadecimal digits, which may look like a number.
    fn cookie(&mut self) -> Step<Vec<u8>> {
        let digits = match self.peek() {
            Some(Kind::Word(word)) => word.clone(),
            Some(Kind::Integer(number)) => number.to_string(),
            _ => return Ok(Vec::new()),
        };
        let pairs: Vec<_> = (0..digits.len()).step_by(2).collect();
        let bytes = pairs.into_iter().map(|at| {
            let pair = digits.get(at..at + 2)?;
            u8::from_str_radix(pair, 16).ok()
        });
        let Some(cookie) = bytes.collect::<Option<Vec<u8>>>() else {
            return self.wrong("a cookie in hexadecimal digits");
        };
        self.at += 1;
        Ok(cookie)
    }

    /// A timestamp; `...` is any.
    fn clock(&mut self, word: &str, beside: &mut Beside) -> Step<u32> {
        if self.is_word(word) && self.peek_at(1) == Some(&Kind::Ellipsis) {
            self.at += 2;
            beside.any_clock = true;
            return Ok(0);
        }
        self.after(word)
    }

    /// `word N`
    fn after(&mut self, word: &str) -> Step<u32> {
        if self.accept_word(word) {
            return self.number();
        }
        self.wrong(word)
    }
}

/// Checks the language's demands on a packet that arrives.
fn arriving(line: usize, mut packet: Packet, beside: &Beside) -> Step<Action> {
    if beside.any_options || beside.any_clock || beside.any_seq {
        return Stop::unsupported(line, "syntax: ... is for what leaves");
    }
    if beside.window.is_none() {
        return Stop::unsupported(line, "syntax: what arrives needs its win");
    }
    if packet.urgent > 0 {
        return Stop::unsupported(line, "urgent data that arrive");
    }
    match beside.ecn {
        Some(EcnWanted::Capable) => {
            return Stop::unsupported(line, "syntax: [ect01] is for what leaves");
        }
        Some(EcnWanted::Exactly(codepoint)) => packet.ecn = codepoint,
        Some(EcnWanted::Any) | None => (),
    }
    Ok(Action::Arrives(packet))
}
