//! Memory that is fast to reach: huge pages, and loads that start before they are needed. And memory that is given back.

/// Free slots, on huge pages where the system has them: with small pages, address translation costs as much as the slot.
pub(crate) fn free_slots<T: Copy + Default>(count: usize) -> Vec<T> {
    let slots = vec![T::default(); count];
    advise_huge_pages(&slots);
    slots
}

/// An empty vector with room for items, on huge pages where the system has them.
pub(crate) fn with_capacity<T>(count: usize) -> Vec<T> {
    let items = Vec::with_capacity(count);
    advise_huge_pages(&items);
    items
}

/// Asks for huge pages for all the memory that a vector has.
#[cfg(not(target_os = "linux"))]
fn advise_huge_pages<T>(_: &Vec<T>) {}

/// Asks for huge pages for all the memory that a vector has.
#[cfg(target_os = "linux")]
#[allow(unsafe_code, clippy::ptr_arg)] // a slice would not have the capacity
fn advise_huge_pages<T>(items: &Vec<T>) {
    const PAGE: usize = 4096;
    let start = items.as_ptr() as usize;
    let end = start + items.capacity() * size_of::<T>();
    let start = start.next_multiple_of(PAGE);
    if let Some(length) = end.checked_sub(start).filter(|&length| length >= 512 * PAGE) {
        // SAFETY: the range lies inside a live allocation, and this advice changes how it is backed, never what it
        // holds. A refusal does no harm, so the result is ignored.
        unsafe { libc::madvise(start as *mut libc::c_void, length, libc::MADV_HUGEPAGE) };
    }
}

/// Gives the system what was freed and is kept for later, before something else needs much memory.
pub(crate) fn give_back_freed() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    #[allow(unsafe_code)]
    // SAFETY: it takes no pointer, and the allocator may be called at any time.
    unsafe {
        libc::malloc_trim(0)
    };
}

/// Starts to load an item, which will be needed soon. A place outside does no harm.
#[inline(always)]
#[allow(unsafe_code)]
pub(crate) fn prefetch<T>(items: &[T], at: usize) {
    let item = items.as_ptr().wrapping_add(at).cast::<u8>();
    // SAFETY: a prefetch is a hint. It reads nothing that the program sees and never faults, whatever the address.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(item.cast());
    }
    // SAFETY: as above.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        std::arch::asm!("prfm pldl1keep, [{item}]", item = in(reg) item, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    std::hint::black_box(item);
}
