//! `#ifdef NAME`, `#ifndef NAME`, `#else`, `#endif`: lines for one kernel only. Other lines that
//! begin with `#` are comments.

use crate::{Settings, Step, Stop};

/// Names of the kernels that scripts ask for.
const FREEBSD: &str = "FreeBSD";
const LINUX: &str = "linux";

/// `text` with blank lines in place of what is not for this kernel, and of the conditions.
pub fn resolve(text: &str, settings: &Settings) -> Step<String> {
    if !text.contains("#if") && !text.contains("#else") && !text.contains("#endif") {
        return Ok(text.to_owned());
    }
    let defined = |name: &str| {
        let freebsd = match settings.stack.as_deref() {
            Some(stack) => stack == "freebsd9",
            None => text.contains("net.inet.") || text.contains("kern.ipc."),
        };
        let kernel = if freebsd { FREEBSD } else { LINUX };
        name == kernel || settings.defines.iter().any(|(word, _)| word == name)
    };
    // Of each condition that is open: whether its lines count.
    let mut open: Vec<bool> = Vec::new();
    let mut kept = String::with_capacity(text.len());
    for (index, line) in text.split('\n').enumerate() {
        let mut words = line.split_whitespace();
        match (words.next(), words.next()) {
            (Some("#ifdef"), Some(name)) => open.push(defined(name)),
            (Some("#ifndef"), Some(name)) => open.push(!defined(name)),
            (Some("#else"), _) => match open.last_mut() {
                Some(counts) => *counts = !*counts,
                None => return Stop::unsupported(index + 1, "syntax: #else without #ifdef"),
            },
            (Some("#endif"), _) => match open.pop() {
                Some(_) => (),
                None => return Stop::unsupported(index + 1, "syntax: #endif without #ifdef"),
            },
            _ if open.iter().all(|counts| *counts) => kept.push_str(line),
            _ => (),
        }
        kept.push('\n');
    }
    if !open.is_empty() {
        return Stop::unsupported(text.lines().count(), "syntax: no #endif");
    }
    Ok(kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_other_kernels_are_blank() {
        let text = "a\n#ifdef STANDARD\nb\n#else\nc\n#ifndef FreeBSD\nd\n#endif\n#endif\ne";
        let settings = Settings {
            stack: Some("freebsd9".to_owned()),
            ..Settings::default()
        };
        let kept = resolve(text, &settings).expect("is balanced");
        assert_eq!(kept, "a\n\n\n\nc\n\n\n\n\ne\n");
        let linux = resolve(text, &Settings::default()).expect("is balanced");
        assert!(linux.contains("c\n\nd\n"), "{linux:?}");
        for wrong in ["#ifdef X\na", "#endif", "a\n#else"] {
            assert!(resolve(wrong, &settings).is_err(), "{wrong}");
        }
    }
}
