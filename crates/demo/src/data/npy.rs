//! Arrays in NumPy's format, as files that users give and that they ask for.

use std::fs::File;
use std::io::{self, BufWriter, Read};
use std::path::Path;

use npyz::{AutoSerialize, DType, NpyFile, Order, WriterBuilder};

use crate::error::DemoError;
use warpverbs::moe::bf16;

/// A table with the shape `[rows, columns]`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Table<T> {
    pub(super) rows: usize,
    pub(super) columns: usize,
    pub(super) values: Vec<T>,
}

impl<T: Copy> Table<T> {
    pub(super) fn row(&self, row: usize) -> &[T] {
        &self.values[row * self.columns..(row + 1) * self.columns]
    }

    fn map<U>(self, convert: impl Fn(T) -> U) -> Table<U> {
        Table {
            rows: self.rows,
            columns: self.columns,
            values: self.values.into_iter().map(convert).collect(),
        }
    }
}

/// Reads tokens as BF16 bits: from uint16, or from float32 by rounding.
pub(super) fn read_tokens(name: &str, file: impl Read) -> Result<Table<u16>, DemoError> {
    let (header, kind) = open(name, file)?;
    match kind.as_str() {
        "u2" => table(name, header),
        "f4" => table::<f32>(name, header).map(|table| table.map(bf16::from_f32)),
        other => Err(wrong_type(name, other, "uint16 (BF16 bits) or float32")),
    }
}

/// Reads expert numbers from int32 or int64.
pub(super) fn read_routing(name: &str, file: impl Read) -> Result<Table<i32>, DemoError> {
    let (header, kind) = open(name, file)?;
    match kind.as_str() {
        "i4" => table(name, header),
        // A number that does not fit into int32 is no expert number, and becomes one that is refused.
        "i8" => table::<i64>(name, header)
            .map(|table| table.map(|id| i32::try_from(id).unwrap_or(i32::MIN))),
        other => Err(wrong_type(name, other, "int32 or int64")),
    }
}

/// Reads weights from float32.
pub(super) fn read_weights(name: &str, file: impl Read) -> Result<Table<f32>, DemoError> {
    let (header, kind) = open(name, file)?;
    match kind.as_str() {
        "f4" => table(name, header),
        other => Err(wrong_type(name, other, "float32")),
    }
}

/// Opens `path` for the read functions of this module.
pub(super) fn open_file(path: &Path) -> Result<io::BufReader<File>, DemoError> {
    let file = File::open(path).map_err(|error| DemoError::file(path, &error))?;
    Ok(io::BufReader::new(file))
}

/// Reads the header. Returns the file, and the kind and size of its elements, such as `f4`.
fn open<R: Read>(name: &str, file: R) -> Result<(NpyFile<R>, String), DemoError> {
    let file = NpyFile::new(file).map_err(|error| DemoError::array(name, error))?;
    let kind = match file.dtype() {
        DType::Plain(plain) => plain
            .to_string()
            .trim_start_matches(['<', '>', '|', '='])
            .to_owned(),
        other => other.descr(),
    };
    if file.order() != Order::C {
        return Err(DemoError::array(
            name,
            "its order is Fortran; C order is needed",
        ));
    }
    if file.shape().len() != 2 {
        let reason = format!("its shape is {:?}; two dimensions are needed", file.shape());
        return Err(DemoError::array(name, reason));
    }
    Ok((file, kind))
}

fn table<T: npyz::Deserialize>(
    name: &str,
    file: NpyFile<impl Read>,
) -> Result<Table<T>, DemoError> {
    let size =
        |i: usize| usize::try_from(file.shape()[i]).map_err(|error| DemoError::array(name, error));
    let (rows, columns) = (size(0)?, size(1)?);
    if rows == 0 || columns == 0 {
        return Err(DemoError::array(name, "it is empty"));
    }
    let values = file
        .into_vec()
        .map_err(|error| DemoError::array(name, error))?;
    Ok(Table {
        rows,
        columns,
        values,
    })
}

fn wrong_type(name: &str, kind: &str, wanted: &str) -> DemoError {
    DemoError::array(name, format!("its elements are {kind}; {wanted} is needed"))
}

/// Writes `values` as an array `[values / columns, columns]`.
pub(super) fn write<T: AutoSerialize>(
    path: &Path,
    columns: usize,
    values: &[T],
) -> Result<(), DemoError> {
    let rows = values.len().checked_div(columns).unwrap_or(0);
    let write = || -> io::Result<()> {
        let mut writer = npyz::WriteOptions::new()
            .default_dtype()
            .shape(&[rows as u64, columns as u64])
            .writer(BufWriter::new(File::create(path)?))
            .begin_nd()?;
        writer.extend(values)?;
        writer.finish()
    };
    write().map_err(|error| DemoError::file(path, &error))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written<T: AutoSerialize>(columns: usize, values: &[T]) -> Vec<u8> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.npy");
        write(&path, columns, values).unwrap();
        std::fs::read(path).unwrap()
    }

    #[test]
    fn what_is_written_is_read_back() {
        let tokens = read_tokens("t", &written(2, &[1u16, 2, 3, 4, 5, 6])[..]).unwrap();
        assert_eq!((tokens.rows, tokens.columns), (3, 2));
        assert_eq!(tokens.row(2), [5, 6]);
        let weights = read_weights("w", &written(1, &[0.5f32, -1.0])[..]).unwrap();
        assert_eq!(weights.values, [0.5, -1.0]);
        let routing = read_routing("r", &written(2, &[7i64, -1, 1 << 40, 0])[..]).unwrap();
        assert_eq!(routing.values, [7, -1, i32::MIN, 0]);
    }

    #[test]
    fn f32_tokens_are_rounded_to_bf16() {
        let tokens = read_tokens("t", &written(2, &[1.0f32, 1.005])[..]).unwrap();
        assert_eq!(tokens.values, [0x3f80, 0x3f81]);
    }

    #[test]
    fn an_array_of_the_wrong_kind_is_refused_by_name_kind_and_need() {
        let error = read_routing("routing.npy", &written(2, &[1.0f32, 2.0])[..]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "routing.npy: its elements are f4; int32 or int64 is needed"
        );
        let error = read_weights("w.npy", &b"not an array"[..])
            .unwrap_err()
            .to_string();
        assert!(error.starts_with("w.npy: "), "{error}");
        let error = read_tokens("t.npy", &written(2, &[0u16; 0])[..]).unwrap_err();
        assert_eq!(error.to_string(), "t.npy: it is empty");
    }

    #[test]
    fn a_file_that_ends_early_is_refused() {
        let mut bytes = written(2, &[1u16, 2, 3, 4]);
        bytes.pop();
        assert!(read_tokens("t.npy", &bytes[..]).is_err());
    }
}
