//! Columns as Arrow's C data interface hands them over: two structures of C, and a callback that frees what they point to.
//!
//! Rule 1: nothing is copied. An exported array points into a `Columns` that it, and each of its children, keeps alive.
//! Rule 2: whoever imports an array may move it, or single children, elsewhere; a structure that was moved has no
//!         release callback any more, and is then only memory.
//! Rule 3: written by hand rather than with the crates of arrow-rs: they would triple the time a build takes.

use std::ffi::{CStr, c_char, c_void};
use std::ptr;
use std::sync::Arc;

use crate::arrow::{Binary, Columns};

const NULLABLE: i64 = 2;

/// The type of a column, and its name.
#[repr(C)]
pub struct ArrowSchema {
    pub(crate) format: *const c_char,
    pub(crate) name: *const c_char,
    metadata: *const c_char,
    flags: i64,
    pub(crate) n_children: i64,
    pub(crate) children: *mut *mut ArrowSchema,
    dictionary: *mut ArrowSchema,
    release: Option<unsafe extern "C" fn(*mut ArrowSchema)>,
    private_data: *mut c_void,
}

/// The buffers of a column.
#[repr(C)]
pub struct ArrowArray {
    pub(crate) length: i64,
    null_count: i64,
    pub(crate) offset: i64,
    pub(crate) n_buffers: i64,
    pub(crate) n_children: i64,
    pub(crate) buffers: *mut *const c_void,
    pub(crate) children: *mut *mut ArrowArray,
    dictionary: *mut ArrowArray,
    release: Option<unsafe extern "C" fn(*mut ArrowArray)>,
    private_data: *mut c_void,
}

// SAFETY: the pointers lead to memory that the structure owns alone, or shares through an Arc of what never changes.
unsafe impl Send for ArrowSchema {}
// SAFETY: as above.
unsafe impl Send for ArrowArray {}

/// A column's declaration.
struct Field {
    name: &'static CStr,
    format: &'static CStr,
    flags: i64,
    children: &'static [Field],
}

const fn field(name: &'static CStr, format: &'static CStr, flags: i64, children: &'static [Field]) -> Field {
    Field { name, format, flags, children }
}

/// `kernel/reference/columns.py`, rule 1, in Arrow's notation of formats.
const RECORD: Field = field(
    c"",
    c"+s",
    0,
    &[
        field(c"partition", c"i", 0, &[]),
        field(c"offset", c"l", 0, &[]),
        field(c"timestamp", c"tsm:UTC", 0, &[]),
        field(c"timestamp_type", c"c", 0, &[]),
        field(c"key", c"z", NULLABLE, &[]),
        field(c"value", c"z", NULLABLE, &[]),
        field(c"headers", c"+l", 0, &[HEADER]),
    ],
);
const HEADER: Field = field(c"item", c"+s", 0, &[field(c"key", c"u", 0, &[]), field(c"value", c"z", NULLABLE, &[])]);

/// The schema of every result.
pub fn schema() -> ArrowSchema {
    export_field(&RECORD)
}

fn export_field(field: &'static Field) -> ArrowSchema {
    let children: Box<[*mut ArrowSchema]> =
        field.children.iter().map(|child| Box::into_raw(Box::new(export_field(child)))).collect();
    let n_children = children.len();
    ArrowSchema {
        format: field.format.as_ptr(),
        name: field.name.as_ptr(),
        metadata: ptr::null(),
        flags: field.flags,
        n_children: n_children as i64,
        children: Box::into_raw(children).cast(),
        dictionary: ptr::null_mut(),
        release: Some(release_schema),
        private_data: ptr::null_mut(),
    }
}

/// The callback for what `export_field` made.
unsafe extern "C" fn release_schema(schema: *mut ArrowSchema) {
    // SAFETY: the interface promises a schema that was not released yet. `children` is the boxed slice of boxes that
    // `export_field` leaked, `n_children` its length; each child still stands in its box, moved from or not.
    unsafe {
        let schema = &mut *schema;
        let children = ptr::slice_from_raw_parts_mut(schema.children, schema.n_children as usize);
        for child in Box::from_raw(children) {
            drop(Box::from_raw(child));
        }
        schema.release = None;
    }
}

impl Drop for ArrowSchema {
    fn drop(&mut self) {
        if let Some(release) = self.release {
            // SAFETY: not released yet, or the callback would be gone (rule 2).
            unsafe { release(self) }
        }
    }
}

/// What an exported array's pointers lead to.
struct Owned {
    buffers: Vec<*const c_void>,
    children: Vec<*mut ArrowArray>,
    _columns: Arc<Columns>,
}

/// All columns as one array of structures.
pub fn array(columns: &Arc<Columns>) -> ArrowArray {
    let rows = columns.count();
    let header = || {
        let children = vec![binary(columns, &columns.header_key), binary(columns, &columns.header_value)];
        export(columns, columns.header_key.count(), 0, vec![ptr::null()], children)
    };
    let fixed = |buffer: *const c_void| export(columns, rows, 0, vec![ptr::null(), buffer], vec![]);
    let headers_buffers = vec![ptr::null(), columns.header_ends.as_ptr().cast()];
    let children = vec![
        fixed(columns.partition.as_ptr().cast()),
        fixed(columns.offset.as_ptr().cast()),
        fixed(columns.timestamp.as_ptr().cast()),
        fixed(columns.timestamp_type.as_ptr().cast()),
        binary(columns, &columns.key),
        binary(columns, &columns.value),
        export(columns, rows, 0, headers_buffers, vec![header()]),
    ];
    export(columns, rows, 0, vec![ptr::null()], children)
}

fn binary(columns: &Arc<Columns>, column: &Binary) -> ArrowArray {
    let validity = if column.null_count == 0 { ptr::null() } else { column.validity.as_ptr() };
    let buffers = vec![validity.cast(), column.ends.as_ptr().cast(), column.bytes.as_ptr().cast()];
    export(columns, column.count(), column.null_count, buffers, vec![])
}

fn export(
    columns: &Arc<Columns>,
    length: usize,
    null_count: usize,
    buffers: Vec<*const c_void>,
    children: Vec<ArrowArray>,
) -> ArrowArray {
    let children = children.into_iter().map(|child| Box::into_raw(Box::new(child))).collect();
    let mut owned = Box::new(Owned { buffers, children, _columns: Arc::clone(columns) });
    ArrowArray {
        length: length as i64,
        null_count: null_count as i64,
        offset: 0,
        n_buffers: owned.buffers.len() as i64,
        n_children: owned.children.len() as i64,
        buffers: owned.buffers.as_mut_ptr(),
        children: owned.children.as_mut_ptr(),
        dictionary: ptr::null_mut(),
        release: Some(release_array),
        private_data: Box::into_raw(owned).cast(),
    }
}

/// The callback for what `export` made.
unsafe extern "C" fn release_array(array: *mut ArrowArray) {
    // SAFETY: the interface promises an array that was not released yet, whose `private_data` is the box that `export`
    // leaked; each child still stands in its own box, moved from or not.
    unsafe {
        let array = &mut *array;
        let owned = Box::from_raw(array.private_data.cast::<Owned>());
        for child in &owned.children {
            drop(Box::from_raw(*child));
        }
        array.release = None;
    }
}

impl Drop for ArrowArray {
    fn drop(&mut self) {
        if let Some(release) = self.release {
            // SAFETY: not released yet, or the callback would be gone (rule 2).
            unsafe { release(self) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_exported_keeps_its_columns_and_lets_them_go() {
        let columns = Arc::new(Columns::default());
        let exported = array(&columns);
        assert_eq!(exported.n_children, 7);
        assert!(Arc::strong_count(&columns) > 7);
        drop(exported);
        assert_eq!(Arc::strong_count(&columns), 1);
        drop(schema());
    }

    #[test]
    fn a_child_outlives_the_array_it_was_taken_from() {
        let columns = Arc::new(Columns::default());
        let exported = array(&columns);
        // SAFETY: as an importer takes a child: its structure is copied, and the callback of the original removed.
        let child = unsafe {
            let original = *exported.children;
            let child = ptr::read(original);
            (*original).release = None;
            child
        };
        drop(exported);
        assert_eq!(Arc::strong_count(&columns), 2);
        drop(child);
        assert_eq!(Arc::strong_count(&columns), 1);
    }
}
