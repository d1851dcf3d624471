//! Reading whole maps.

use std::os::fd::AsRawFd;

use anyhow::{Context, Result, bail};
use libbpf_rs::{MapCore, libbpf_sys};

use crate::{
    object,
    plain::{self, Plain},
};

/// Entries per system call, to begin with; a hash bucket larger than this makes it grow.
const BATCH: u32 = 4096;

/// Every entry of a hash map. Entries that come or go meanwhile may be in it or not. With
/// `locked`, values are copied under their spin locks.
///
/// # Errors
/// The map holds other types, or the kernel refused.
pub(crate) fn entries<K: Plain, V: Plain>(map: &dyn MapCore, locked: bool) -> Result<Vec<(K, V)>> {
    object::check_layout(map, size_of::<K>(), size_of::<V>())?;
    let mut reader = Reader {
        fd: map.as_fd().as_raw_fd(),
        key_bytes: size_of::<K>(),
        value_bytes: size_of::<V>(),
        room: BATCH.min(map.max_entries()).max(1),
        cursor: None,
        options: libbpf_sys::bpf_map_batch_opts {
            sz: size_of::<libbpf_sys::bpf_map_batch_opts>() as libbpf_sys::size_t,
            elem_flags: if locked {
                libbpf_sys::BPF_F_LOCK.into()
            } else {
                0
            },
            ..Default::default()
        },
    };
    let mut found = Vec::new();
    loop {
        let batch = reader
            .next()
            .with_context(|| format!("reading map {}", map.name().to_string_lossy()))?;
        for (key, value) in batch
            .keys
            .chunks_exact(size_of::<K>())
            .zip(batch.values.chunks_exact(size_of::<V>()))
        {
            found.push((plain::value(key)?, plain::value(value)?));
        }
        if batch.last {
            return Ok(found);
        }
    }
}

/// Removes every entry of a hash map.
///
/// # Errors
/// The kernel refused.
pub(crate) fn clear(map: &dyn MapCore) -> Result<()> {
    let keys: Vec<Vec<u8>> = map.keys().collect();
    for key in keys {
        match map.delete(&key) {
            // Collected or pushed out meanwhile.
            Err(error) if error.kind() == libbpf_rs::ErrorKind::NotFound => {}
            outcome => {
                outcome.with_context(|| format!("clearing map {}", map.name().to_string_lossy()))?
            }
        }
    }
    Ok(())
}

struct Reader {
    fd: i32,
    key_bytes: usize,
    value_bytes: usize,
    room: u32,
    cursor: Option<Vec<u8>>,
    options: libbpf_sys::bpf_map_batch_opts,
}

struct Batch {
    keys: Vec<u8>,
    values: Vec<u8>,
    last: bool,
}

impl Reader {
    fn next(&mut self) -> Result<Batch> {
        loop {
            let mut keys = vec![0u8; self.room as usize * self.key_bytes];
            let mut values = vec![0u8; self.room as usize * self.value_bytes];
            // The kernel writes a bucket number, at most a key's size, at least four bytes.
            let mut next = vec![0u8; self.key_bytes.max(4)];
            let mut count = self.room;
            let from = self
                .cursor
                .as_mut()
                .map_or(std::ptr::null_mut(), |cursor| cursor.as_mut_ptr());
            // SAFETY: the buffers have room for `count` keys and values and outlive the call.
            let code = unsafe {
                libbpf_sys::bpf_map_lookup_batch(
                    self.fd,
                    from.cast(),
                    next.as_mut_ptr().cast(),
                    keys.as_mut_ptr().cast(),
                    values.as_mut_ptr().cast(),
                    &mut count,
                    &self.options,
                )
            };
            let last = match -code {
                0 => false,
                libc::ENOENT => true,
                libc::EINTR => continue,
                libc::ENOSPC => {
                    self.room *= 2;
                    continue;
                }
                error => bail!("{}", std::io::Error::from_raw_os_error(error)),
            };
            self.cursor = Some(next);
            keys.truncate(count as usize * self.key_bytes);
            values.truncate(count as usize * self.value_bytes);
            return Ok(Batch { keys, values, last });
        }
    }
}
