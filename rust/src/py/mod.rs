//! The Python module `tokengraft._core`: converts values and errors, and releases the GIL. Does nothing else.

mod counter;
mod counts;
mod extend;
mod model;
mod pipeline;
mod segment;
mod vocabulary;

use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyType};

use crate::error::{Error, Result};
use crate::stop::Stop;

impl From<Error> for PyErr {
    /// The class of `tokengraft.errors` that the error belongs to, with its hint.
    fn from(error: Error) -> Self {
        let class = match error {
            _ if error.is_bad_document() => "CorpusError",
            Error::Overflow { .. }
            | Error::TooFrequent
            | Error::NotText
            | Error::BadCounts { .. }
            | Error::TooMany { .. } => "CountsError",
            Error::Spill { .. } => "OutputError",
            _ => "InvalidTokenizerError",
        };
        Python::attach(|py| {
            let raised = (|| {
                let errors = py.import("tokengraft.errors")?;
                let mut hint = error.hint().to_owned();
                for (name, value) in [("memory", None), ("skip_bad", None), ("documents", Some("lines"))] {
                    let option: String = errors.call_method1("option", (name, value))?.extract()?;
                    hint = hint.replace(&format!("{{{name}}}"), &option);
                }
                let keywords = PyDict::new(py);
                keywords.set_item("hint", hint)?;
                let class = errors.getattr(class)?.cast_into::<PyType>()?;
                Ok::<_, PyErr>(PyErr::from_value(class.call((error.to_string(),), Some(&keywords))?))
            })();
            raised.unwrap_or_else(|_| PyRuntimeError::new_err(error.to_string()))
        })
    }
}

/// The result of a long operation. It runs on another thread, because Python handles signals on this one alone: if the
/// handler of a signal raises, the operation is stopped.
fn interruptible<T: Send>(py: Python<'_>, operation: impl FnOnce(&Stop) -> Result<T> + Send) -> PyResult<T> {
    const LOOK_EVERY: Duration = Duration::from_millis(50);
    let (stop, mut raised) = (Stop::default(), None);
    let result = py.detach(|| {
        thread::scope(|scope| {
            let (sender, receiver) = mpsc::channel();
            let stop = &stop;
            // The receiver waits for the result, and is there.
            scope.spawn(move || sender.send(operation(stop)).unwrap_or_default());
            loop {
                match receiver.recv_timeout(LOOK_EVERY) {
                    Ok(result) => return result,
                    Err(RecvTimeoutError::Disconnected) => return Err(Error::Stopped), // a panic, which goes on here
                    Err(RecvTimeoutError::Timeout) if raised.is_none() => {
                        raised = Python::attach(|py| py.check_signals()).err();
                        raised.iter().for_each(|_| stop.ask());
                    }
                    Err(RecvTimeoutError::Timeout) => {}
                }
            }
        })
    });
    raised.map_or_else(|| Ok(result?), Err)
}

/// Gives the system memory that was freed and is kept for later.
#[pyfunction]
fn give_back_freed() {
    crate::memory::give_back_freed();
}

/// `tokengraft._core`.
#[pymodule(name = "_core")]
fn core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<model::PyModel>()?;
    module.add_class::<model::PyRemaining>()?;
    module.add_class::<counter::PyCounter>()?;
    module.add_class::<counts::PyCounts>()?;
    module.add_class::<pipeline::PyCutter>()?;
    module.add_class::<counter::PyRows>()?;
    module.add_class::<segment::PySegmenter>()?;
    module.add_class::<vocabulary::PyVocabulary>()?;
    module.add_function(wrap_pyfunction!(counter::documents, module)?)?;
    module.add_function(wrap_pyfunction!(extend::extend, module)?)?;
    module.add_function(wrap_pyfunction!(extend::extend_pieces, module)?)?;
    module.add_function(wrap_pyfunction!(extend::pairs, module)?)?;
    module.add_function(wrap_pyfunction!(extend::script_properties, module)?)?;
    module.add_function(wrap_pyfunction!(extend::of_scripts, module)?)?;
    module.add_function(wrap_pyfunction!(extend::marks, module)?)?;
    module.add_function(wrap_pyfunction!(pipeline::scripts, module)?)?;
    module.add_function(wrap_pyfunction!(give_back_freed, module)?)?;
    module.add_function(wrap_pyfunction!(segment::edit_distances, module)?)?;
    module.add_function(wrap_pyfunction!(segment::text_size, module)?)?;
    module.add_class::<pipeline::PyUpstream>()?;
    module.add_class::<pipeline::PyPipeline>()
}
