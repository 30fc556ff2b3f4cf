//! Pictures of the documents are SVG that a browser can draw, with text that can be read on a telephone and on a wide screen, and with
//! colours for light and dark pages.

use std::fs;
use std::path::Path;

use super::documents;

/// Pixels of the pages on which a picture is looked at: it fills their width.
const WIDTHS: [f64; 2] = [375.0, 1200.0];
/// Of a font: smaller text is a blur at 375 pixels.
const LEAST_PIXELS: f64 = 10.0;

/// An element's name and attributes.
type Element<'a> = (&'a str, Vec<(&'a str, &'a str)>);

/// Where the pictures of this text lie, outside of code.
fn pictures(text: &str) -> Vec<&str> {
    let prose = text.split("```").step_by(2);
    let starts = prose.flat_map(|part| part.split("![").skip(1));
    starts
        .filter_map(|rest| Some(rest.split_once("](")?.1.split_once(')')?.0))
        .collect()
}

/// The defects of a picture.
fn faults(svg: &str) -> Vec<String> {
    let elements = match elements(svg) {
        Ok(elements) => elements,
        Err(fault) => return vec![fault],
    };
    let Some((_, root)) = elements.first().filter(|(name, _)| *name == "svg") else {
        return vec!["the first element must be svg".to_owned()];
    };
    let mut found = Vec::new();
    if attribute(root, "xmlns") != Some("http://www.w3.org/2000/svg") {
        found.push("svg has no xmlns, so a browser shows nothing".to_owned());
    }
    if !elements.iter().any(|(name, _)| *name == "title") {
        found.push("has no title for readers who hear it".to_owned());
    }
    if !svg.contains("@media (prefers-color-scheme: dark)") {
        found.push("has no colours for a dark page".to_owned());
    }
    match (
        attribute(root, "viewBox").and_then(width_of),
        smallest(svg, &elements),
    ) {
        (None, _) => found.push("svg has no viewBox of four numbers".to_owned()),
        (_, None) => found.push("names no font size, so that of the browser holds".to_owned()),
        (Some(width), Some(font)) => {
            let shown = WIDTHS.map(|page| (page, font * page / width));
            let small = shown.iter().filter(|(_, pixels)| *pixels < LEAST_PIXELS);
            found.extend(small.map(|(page, pixels)| {
                format!(
                    "the smallest text has {pixels:.1} pixels at a width of {page}; it must be at least {LEAST_PIXELS}"
                )
            }));
        }
    }
    found
}

/// The width of a view box.
fn width_of(view: &str) -> Option<f64> {
    let numbers: Result<Vec<f64>, _> = view.split_whitespace().map(str::parse).collect();
    let numbers = numbers.ok().filter(|numbers| numbers.len() == 4)?;
    (numbers[2] > 0.0 && numbers[3] > 0.0).then_some(numbers[2])
}

/// The smallest font size of its styles and elements, in units of the view box.
fn smallest(svg: &str, elements: &[Element<'_>]) -> Option<f64> {
    let of_styles = svg.split("font-size:").skip(1).map(|rest| {
        let end = rest.find([';', '}', '"']).unwrap_or(rest.len());
        &rest[..end]
    });
    let of_elements = elements
        .iter()
        .filter_map(|(_, attributes)| attribute(attributes, "font-size"));
    let sizes = of_styles.chain(of_elements).map(|size| {
        let size = size.trim().trim_end_matches("px");
        // A size that is no number of pixels counts as illegible.
        size.parse::<f64>().unwrap_or(0.0)
    });
    sizes.min_by(f64::total_cmp)
}

fn attribute<'a>(attributes: &[(&'a str, &'a str)], name: &str) -> Option<&'a str> {
    let found = attributes.iter().find(|(of, _)| *of == name);
    found.map(|(_, value)| *value)
}

/// The elements in their order; or why the text is no XML.
fn elements(svg: &str) -> Result<Vec<Element<'_>>, String> {
    let mut found = Vec::new();
    let mut open: Vec<&str> = Vec::new();
    let mut rest = svg.trim();
    while let Some(start) = rest.find('<') {
        if open.is_empty() && start > 0 {
            return Err(format!("text outside of svg: {:?}", &rest[..start]));
        }
        rest = &rest[start + 1..];
        if let Some(comment) = rest.strip_prefix("!--") {
            rest = comment.split_once("-->").ok_or("a comment has no end")?.1;
        } else if let Some(name) = rest.strip_prefix('/') {
            let (name, behind) = name.split_once('>').ok_or("a tag has no end")?;
            if open.pop() != Some(name) {
                return Err(format!("</{name}> closes another element"));
            }
            rest = behind.trim_start_matches(|c: char| open.is_empty() && c.is_whitespace());
        } else {
            let (element, is_empty, behind) = tag(rest)?;
            if open.is_empty() && !found.is_empty() {
                return Err(format!("<{}> stands outside of svg", element.0));
            }
            if !is_empty {
                open.push(element.0);
            }
            found.push(element);
            rest = behind;
        }
    }
    match open.last() {
        Some(name) => Err(format!("<{name}> is not closed")),
        None if !rest.is_empty() => Err(format!("text outside of svg: {rest:?}")),
        None => Ok(found),
    }
}

/// The element whose tag begins here, whether it is empty, and what stands after the tag.
fn tag(text: &str) -> Result<(Element<'_>, bool, &str), String> {
    let end = text.find(|c: char| c.is_whitespace() || "/>".contains(c));
    let (name, mut rest) = text.split_at(end.ok_or("a tag has no end")?);
    let mut attributes = Vec::new();
    loop {
        rest = rest.trim_start();
        if let Some(behind) = rest.strip_prefix("/>") {
            return Ok(((name, attributes), true, behind));
        }
        if let Some(behind) = rest.strip_prefix('>') {
            return Ok(((name, attributes), false, behind));
        }
        let quoted = rest.split_once("=\"");
        let pair = quoted.and_then(|(key, value)| Some((key, value.split_once('"')?)));
        let Some((key, (value, behind))) = pair.filter(|(key, _)| is_name(key)) else {
            return Err(format!("<{name}> has an attribute without name or quotes"));
        };
        attributes.push((key, value));
        rest = behind;
    }
}

fn is_name(key: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "-:".contains(c);
    !key.is_empty() && key.chars().all(is_part)
}

#[test]
fn pictures_can_be_read_at_375_and_at_1200_pixels() {
    let mut count = 0;
    let mut found = Vec::new();
    for document in documents() {
        let text = fs::read_to_string(&document).unwrap();
        for picture in pictures(&text) {
            count += 1;
            let name = format!("{} shows {picture}", document.display());
            if Path::new(picture)
                .extension()
                .is_none_or(|end| end != "svg")
            {
                found.push(format!("{name}, which is no .svg"));
                continue;
            }
            match fs::read_to_string(document.parent().unwrap().join(picture)) {
                Ok(svg) => {
                    found.extend(faults(&svg).iter().map(|fault| format!("{name}: {fault}")))
                }
                Err(error) => found.push(format!("{name}: {error}")),
            }
        }
    }
    assert!(found.is_empty(), "\n{}\n", found.join("\n"));
    assert!(count >= 2, "only {count} pictures found");
}

#[test]
fn pictures_that_are_broken_or_too_small_are_found() {
    let text = "![a](b.svg), [c](d.md)\n```\n![e](f.svg)\n```\n";
    assert_eq!(pictures(text), ["b.svg"]);
    let good = include_str!("../../../docs/pictures/put.svg");
    assert_eq!(faults(good), [""; 0]);
    for (from, to, fault) in [
        (
            "font-size: 22px",
            "font-size: 21px",
            "9.8 pixels at a width of 375",
        ),
        ("0 0 800 800", "0 0 900 800", "9.2 pixels at a width of 375"),
        ("0 0 800 800", "0 0 800", "no viewBox"),
        ("viewBox=\"0 0 800 800\" role", "role", "no viewBox"),
        (
            "<text x=\"522\"",
            "<text font-size=\"1em\" x=\"522\"",
            "0.0 pixels",
        ),
        ("prefers-color-scheme: dark", "print", "dark page"),
        (
            "<title id=\"title\">How a put travels</title>",
            "",
            "no title",
        ),
        ("xmlns=", "xmls=", "no xmlns"),
        ("</defs>", "", "</svg> closes another element"),
        ("</svg>", "", "<svg> is not closed"),
        ("</svg>", "</svg> and", "text outside"),
        ("</svg>", "</svg><g/>", "<g> stands outside"),
        ("rx=\"10\"", "rx=10", "without name or quotes"),
    ] {
        assert!(good.contains(from), "nothing to plant: {from}");
        let found = faults(&good.replacen(from, to, 1));
        assert!(
            found.iter().any(|one| one.contains(fault)),
            "{to}: {found:?}"
        );
    }
}
