//! Read leases: while one is held, the kernel lets nobody open the file for writing. In: open files. Out: whether their
//! leases are held.
//!
//! A writer's `open` or `truncate` waits until the lease is given back, which a thread does as soon as the kernel
//! signals it; without waiting (`O_NONBLOCK`), its first attempt fails. If this process is stopped meanwhile, the writer
//! waits for it, at most `/proc/sys/fs/lease-break-time` (45 s), after which the kernel ends the lease. A truncation
//! through the kernel's NFS server, or an overlay above the folder, ends no lease. Source: fcntl(2), "Leases".

use nix::errno::Errno;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::statfs::{BTRFS_SUPER_MAGIC, EXT4_SUPER_MAGIC, TMPFS_MAGIC, XFS_SUPER_MAGIC, fstatfs};
use nix::unistd::gettid;
use parking_lot::Mutex;
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, LazyLock, Weak};
use std::time::Duration;

/// `F_SETOWN_EX` of linux/fcntl.h, missing from the libc crate for this target.
const F_SETOWN_EX: libc::c_int = 15;
/// `F_OWNER_TID` of linux/fcntl.h: the owner is a single thread.
const F_OWNER_TID: libc::c_int = 0;
/// `F_SETSIG` of linux/fcntl.h, missing too.
const F_SETSIG: libc::c_int = 10;
/// Signal of a waiting writer. A process ignores it by default: the kernel forgets the owner of a lease that it ends, and
/// then signals the process.
const WRITER_WAITS: Signal = Signal::SIGURG;

/// Time without reads after which a lease is given back, and interval of looking for such files.
pub(super) const IDLE: Duration = Duration::from_secs(1);

/// Thread that gives leases back; `None` if it could not be started. It runs until the process ends.
static KEEPER: LazyLock<Option<Keeper>> = LazyLock::new(|| Keeper::start().ok());

/// Open file with a lease.
pub(super) trait Leased: Send + Sync {
    fn fd(&self) -> BorrowedFd<'_>;

    /// Gives the lease back if a writer waits for it or the file is no longer read. True if it is still held.
    fn keeps_lease(&self) -> bool;
}

struct Keeper {
    thread: libc::pid_t,
    files: Mutex<Vec<Weak<dyn Leased>>>,
}

impl Keeper {
    fn start() -> io::Result<Self> {
        let (send, receive) = sync_channel(1);
        let thread = std::thread::Builder::new().name("file-leases".to_owned());
        thread.spawn(move || {
            // Blocked, the signal waits for this thread instead of being ignored.
            let signal = SigSet::from(WRITER_WAITS);
            if signal.thread_block().is_ok() && send.send(gettid().as_raw()).is_ok() {
                keep(&signal);
            }
        })?;
        Ok(Self {
            thread: receive.recv().map_err(io::Error::other)?,
            files: Mutex::default(),
        })
    }
}

/// Gives leases back when a writer waits, and those of files that are no longer read.
fn keep(signal: &SigSet) {
    let timeout = libc::timespec {
        tv_sec: IDLE.as_secs().cast_signed(),
        tv_nsec: 0,
    };
    loop {
        // SAFETY: the set and the time are valid, and no details of the signal are asked for.
        let result = unsafe { libc::sigtimedwait(signal.as_ref(), std::ptr::null_mut(), &raw const timeout) };
        if result < 0 && Errno::last() != Errno::EAGAIN {
            std::thread::sleep(Duration::from_millis(1));
        }
        let Some(keeper) = &*KEEPER else { continue };
        // Dropped after the lock: closing a large removed file takes long.
        let mut looked_at = Vec::new();
        keeper.files.lock().retain(|file| {
            let file = file.upgrade();
            let keeps = file.as_ref().is_some_and(|file| file.keeps_lease());
            looked_at.push(file);
            keeps
        });
    }
}

/// True if only this machine can write the files of the file system, so that a lease holds off every writer.
pub(super) fn is_local(fd: BorrowedFd<'_>) -> bool {
    let kind = fstatfs(fd).map(|stat| stat.filesystem_type());
    matches!(
        kind,
        Ok(EXT4_SUPER_MAGIC | XFS_SUPER_MAGIC | BTRFS_SUPER_MAGIC | TMPFS_MAGIC)
    )
}

/// Takes a lease of a file if that is possible: the file system is local, the file belongs to this user, and nobody has
/// it open for writing. True if it was taken.
pub(super) fn take(file: &Arc<impl Leased + 'static>) -> bool {
    let fd = file.fd();
    let Some(keeper) = is_local(fd).then(|| KEEPER.as_ref()).flatten() else {
        return false;
    };
    // Held until the file is in the list, so that a signal meanwhile finds it there.
    let mut files = keeper.files.lock();
    if is_held(fd) {
        return true;
    }
    let (raw, owner) = (fd.as_raw_fd(), [F_OWNER_TID, keeper.thread]);
    // SAFETY: the descriptor is open, and the arguments are an integer, and two that the kernel reads.
    let is_signalled = unsafe {
        libc::fcntl(raw, F_SETSIG, WRITER_WAITS as libc::c_int) == 0
            && libc::fcntl(raw, F_SETOWN_EX, owner.as_ptr()) == 0
    };
    let taken = is_signalled && set(fd, libc::F_RDLCK);
    if taken {
        let file: Arc<dyn Leased> = file.clone();
        files.push(Arc::downgrade(&file));
    }
    taken
}

/// Gives the lease of a file back, if it is held. Fails if the file has got another owner: it has changed then, and the
/// next read closes it.
pub(super) fn give_back(fd: BorrowedFd<'_>) {
    set(fd, libc::F_UNLCK);
}

/// True if the lease of a file is held, and no writer waits for it.
pub(super) fn is_held(fd: BorrowedFd<'_>) -> bool {
    // SAFETY: the descriptor is open, and this command has no argument.
    unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETLEASE) == libc::F_RDLCK }
}

fn set(fd: BorrowedFd<'_>, kind: libc::c_int) -> bool {
    // SAFETY: the descriptor is open, and the argument is an integer.
    unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETLEASE, kind) == 0 }
}
