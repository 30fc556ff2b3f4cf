//! `./x kernels --commands`: how each kernel is compiled, for editors (clangd) and tools that read compile_commands.json.
//!
//! It writes two files: `cpu` with the commands of `simt::build`, which need nothing from NVIDIA, and `cuda` with commands by which clang
//! reads CUDA. `.clangd` names the first; `clangd --compile-commands-dir=target/compile_commands/cuda` reads the second.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::failure::{At, Result};
use crate::kernels::cuda_program;
use crate::tree::{kernel_sources, prepare};

const FOLDER: &str = "target/compile_commands";

pub(crate) fn write() -> Result {
    prepare("kernels")?;
    let root = std::env::current_dir().at(".")?;
    let sources = kernel_sources()?;
    let nvcc = cuda_program("nvcc")?;
    let toolkit = nvcc.ancestors().nth(2).unwrap_or(Path::new("."));
    for (name, compiler) in [("cpu", for_cpu()), ("cuda", for_cuda(&root.join(toolkit)))] {
        let folder = Path::new(FOLDER).join(name);
        fs::create_dir_all(&folder).at(&folder)?;
        let file = folder.join("compile_commands.json");
        let text = commands(&root, &sources, &compiler);
        fs::write(&file, format!("{text:#}\n")).at(&file)?;
        println!("{}: {} kernels", file.display(), sources.len());
    }
    Ok(())
}

fn for_cpu() -> Vec<String> {
    let words = ["c++", "-std=c++20", "-x", "c++", "-Wall", "-Wextra"];
    words.map(str::to_owned).into()
}

fn for_cuda(toolkit: &Path) -> Vec<String> {
    let words = [
        "clang++",
        "-std=c++17",
        "-x",
        "cuda",
        "--cuda-gpu-arch=sm_90",
        "--cuda-device-only",
        "-nocudalib",
        "-Wno-unknown-cuda-version",
    ];
    let mut words: Vec<String> = words.map(str::to_owned).into();
    words.push(format!("--cuda-path={}", toolkit.display()));
    words
}

/// Returns an entry for each source, relative to `root`, with the folders of headers that build scripts name.
fn commands(root: &Path, sources: &[PathBuf], compiler: &[String]) -> Value {
    let one = |source: &PathBuf| {
        let mut arguments = compiler.to_vec();
        let own = source.parent().unwrap_or(Path::new("."));
        let headers = [
            "kernels/include",
            "crates/simt/include",
            "crates/gpuhca/kernels/gpuhca",
        ];
        for folder in headers.map(Path::new).into_iter().chain([own]) {
            arguments.extend(["-I".to_owned(), folder.display().to_string()]);
        }
        arguments.extend(["-c".to_owned(), source.display().to_string()]);
        json!({ "directory": root, "file": source, "arguments": arguments })
    };
    sources.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_has_the_file_its_language_and_its_folders() {
        let sources = [PathBuf::from("kernels/moe/dispatch.cu")];
        let cpu = commands(Path::new("/tree"), &sources, &for_cpu());
        assert_eq!(cpu[0]["directory"], "/tree");
        assert_eq!(cpu[0]["file"], "kernels/moe/dispatch.cu");
        let words = |value: &Value| value["arguments"].to_string();
        assert!(words(&cpu[0]).contains(r#""-x","c++""#));
        assert!(words(&cpu[0]).contains(r#""-I","kernels/moe","-c","kernels/moe/dispatch.cu""#));
        let cuda = commands(Path::new("/tree"), &sources, &for_cuda(Path::new("/cu13")));
        assert!(words(&cuda[0]).contains(r#""-x","cuda""#));
        assert!(words(&cuda[0]).contains("--cuda-path=/cu13"));
    }
}
