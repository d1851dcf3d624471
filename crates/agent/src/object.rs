//! Embedding and loading of compiled kernel programs.

use std::{cell::RefCell, sync::Once};

use anyhow::{Context, Result, anyhow, bail};
use libbpf_rs::{
    MapCore, MapMut, Object, ObjectBuilder, OpenMapMut, OpenObject, PrintLevel, ProgramMut,
};

/// How many of a verifier log's last lines an error shows.
const LOG_TAIL_LINES: usize = 30;

/// Bytes with the alignment that an ELF reader may count on.
#[repr(C, align(8))]
#[derive(Debug)]
pub struct Aligned<T: ?Sized>(pub T);

/// The object compiled from `bpf/NAME.bpf.c`, as `&'static [u8]`: `include_object!("enforce")`.
#[macro_export]
macro_rules! include_object {
    ($name:literal) => {{
        static OBJECT: &$crate::object::Aligned<[u8]> = &$crate::object::Aligned(*include_bytes!(
            concat!(env!("OUT_DIR"), "/", $name, ".bpf.o")
        ));
        &OBJECT.0
    }};
}

/// Opens a compiled object; `name` is what errors and the kernel's listings call it.
///
/// # Errors
/// The bytes are no BPF object that libbpf understands.
pub fn open(name: &str, bytes: &[u8]) -> Result<OpenObject> {
    let (opened, log) = captured(|| {
        ObjectBuilder::default()
            .name(name)
            .and_then(|builder| builder.open_memory(bytes))
    });
    opened.map_err(|error| refused(&format!("opening the programs of {name}"), &error, &log))
}

/// Loads an opened object: creates its maps and has the verifier check its programs.
///
/// # Errors
/// The kernel refused a map or a program; the message ends with the last lines of its log.
pub fn load(object: OpenObject, name: &str) -> Result<Object> {
    let (loaded, log) = captured(|| object.load());
    loaded.map_err(|error| refused(&format!("loading the programs of {name}"), &error, &log))
}

/// The program called `name` of a loaded object.
///
/// # Errors
/// There is none: the object and this build do not belong together.
pub fn program<'a>(object: &'a Object, name: &str) -> Result<ProgramMut<'a>> {
    object
        .progs_mut()
        .find(|program| program.name() == name)
        .with_context(|| format!("object {} has no program {name}", object_name(object)))
}

/// The map called `name` of a loaded object.
///
/// # Errors
/// There is none: the object and this build do not belong together.
pub fn map<'a>(object: &'a mut Object, name: &str) -> Result<MapMut<'a>> {
    let owner = object_name(object);
    object
        .maps_mut()
        .find(|map| map.name() == name)
        .with_context(|| format!("object {owner} has no map {name}"))
}

/// The map called `name` of an object not yet loaded, to size it or to put a pinned one in its
/// place.
///
/// # Errors
/// There is none: the object and this build do not belong together.
pub fn open_map<'a>(object: &'a mut OpenObject, name: &str) -> Result<OpenMapMut<'a>> {
    object
        .maps_mut()
        .find(|map| map.name() == name)
        .with_context(|| format!("the object has no map {name}"))
}

/// Fails unless a map's key and value have these sizes in bytes: a guard before raw accesses.
///
/// # Errors
/// Names the map and both sizes.
pub fn check_layout(map: &dyn MapCore, key: usize, value: usize) -> Result<()> {
    if map.key_size() as usize != key || map.value_size() as usize != value {
        bail!(
            "map {}: key and value have {} and {} bytes, this build expects {key} and {value}",
            map.name().to_string_lossy(),
            map.key_size(),
            map.value_size()
        );
    }
    Ok(())
}

fn object_name(object: &Object) -> String {
    object
        .name()
        .map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}

thread_local! {
    /// libbpf's messages while `captured` runs on this thread.
    static LOG: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// libbpf prints through one process-wide function; it runs on the thread that made the call.
fn captured<T>(work: impl FnOnce() -> T) -> (T, String) {
    static PRINT: Once = Once::new();
    PRINT.call_once(|| {
        libbpf_rs::set_print(Some((PrintLevel::Warn, |_, line| {
            LOG.with_borrow_mut(|log| {
                if let Some(log) = log {
                    log.push_str(&line);
                }
            });
        })));
    });
    let outer = LOG.replace(Some(String::new()));
    let result = work();
    let log = LOG.replace(outer).unwrap_or_default();
    (result, log)
}

fn refused(what: &str, error: &libbpf_rs::Error, log: &str) -> anyhow::Error {
    let lines: Vec<&str> = log.lines().filter(|line| !line.trim().is_empty()).collect();
    let tail = &lines[lines.len().saturating_sub(LOG_TAIL_LINES)..];
    if tail.is_empty() {
        return anyhow!("{what}: {error:#}");
    }
    let verdict = verdict(&lines).map_or_else(String::new, |line| format!(": {line}"));
    anyhow!(
        "{what}: {error:#}{verdict}\nthe last {} of {} lines that libbpf and the kernel say about it:\n  {}",
        tail.len(),
        lines.len(),
        tail.join("\n  ")
    )
}

/// The verifier's reason: what it says just before it sums up its work.
fn verdict<'a>(lines: &[&'a str]) -> Option<&'a str> {
    let summary = lines
        .iter()
        .rposition(|line| line.starts_with("processed "))?;
    lines.get(summary.checked_sub(1)?).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_object_is_refused_with_a_reason() {
        let error = open("nonsense", b"not an ELF file")
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("opening the programs of nonsense"),
            "{error}"
        );
    }

    #[test]
    fn a_long_log_is_cut_to_its_end() {
        let log: String = (0..100).map(|n| format!("line {n}\n")).collect();
        let error = libbpf_rs::Error::from_raw_os_error(libc::EACCES);
        let text = refused("loading", &error, &log).to_string();
        assert!(text.contains("line 99") && text.contains("line 70"));
        assert!(!text.contains("line 69"));
    }

    #[test]
    fn the_first_line_of_an_error_has_the_verifiers_reason() {
        let log = "0: (95) exit\nR0 !read_ok\nprocessed 1 insns (limit 1000000)\nlibbpf: failed\n";
        let error = libbpf_rs::Error::from_raw_os_error(libc::EACCES);
        let text = refused("loading", &error, log).to_string();
        assert!(
            text.lines().next().unwrap().ends_with(": R0 !read_ok"),
            "{text}"
        );
    }
}
