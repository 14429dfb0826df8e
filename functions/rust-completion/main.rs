//! Continues a text and streams it: what functions/text-completion does, in Rust.
use pie::fused::{FinishReason, PipeRequest, Run, RunRequest, Sampler, StepRequest};
use pie::tokenize::{self, Detokenizer};
use pie::{allocate, fused, queue, runtime, Json};

/// Tokens before a piece of text that decide how it is spelled: spaces, incomplete characters.
const BEFORE: usize = 8;

fn run(input: Json) -> Result<Json, Box<dyn std::error::Error>> {
    let models = runtime::models();
    let model = match input.get("model").as_str() {
        Some(name) => models.iter().find(|model| model.name == name).ok_or("The function was granted no model of this name.")?,
        None => models.first().ok_or("The function was granted no model.")?,
    };
    let special = tokenize::special_tokens(&model.name)?;
    let mut tokens: Vec<u32> = special.bos.into_iter().collect();
    tokens.extend(tokenize::tokenize(&model.name, input.get("prompt").as_str().unwrap_or(""), false)?);
    let prompt = tokens.len() as u32;
    let last = *tokens.last().ok_or("The prompt is empty, and the model has no token that begins a text.")?;
    let room = model.context_length.checked_sub(prompt).filter(|room| *room > 0).ok_or("The prompt is longer than the model's context.")?;
    let most = input.get("maxTokens").as_u32().unwrap_or(room).min(room);
    let full = if most < room { "max-tokens" } else { "context-length" };

    let queue = queue::Queue::new(&model.name);
    let pages = allocate::allocate_pages(&queue, (prompt + most + model.page_size - 1) / model.page_size)?;
    // All but the last token fill the cache. The run is behind them in the queue and fails if they do, so this does not wait.
    if prompt > 1 {
        drop(fused::step(&queue, &StepRequest {
            tokens: tokens[..tokens.len() - 1].to_vec(),
            positions: (0..prompt - 1).collect(),
            in_pages: pages.clone(),
            out_pages: pages.clone(),
            ..StepRequest::default()
        }));
    }

    let detokenizer = Detokenizer::new(&model.name);
    detokenizer.push(&tokens[tokens.len().saturating_sub(BEFORE)..])?;
    let (mut text, mut sent) = (String::new(), String::new());
    let mut reason = if most == 0 { Some(full) } else { None };
    let run = Run::new(&queue, &RunRequest {
        token: last,
        position: prompt - 1,
        pages,
        max_tokens: most,
        sampler: sampler(&input),
        stop_tokens: special.eos.into_iter().chain(special.bos).collect(),
    });
    let mut request = PipeRequest { stops: stops(input.get("stop")), ..PipeRequest::default() };
    while reason.is_none() {
        request.before = tokens[tokens.len().saturating_sub(BEFORE)..].to_vec();
        let mut piped = run.pipe(&request).wait()?;
        sent += &piped.text;
        request.held = piped.held;
        reason = match (&piped.stop, piped.finished) {
            (Some(_), _) => Some("stop-string"),
            (None, Some(FinishReason::StopToken)) => Some("stop-token"),
            (None, finished) => finished.map(|_| full),
        };
        if reason == Some("stop-token") {
            piped.tokens.pop();
        }
        for token in piped.tokens {
            // A token that begins inside the stop string is no part of the result.
            if reason == Some("stop-string") && text.len() >= sent.len() {
                break;
            }
            text += &detokenizer.push(&[token])?;
            tokens.push(token);
        }
    }
    if reason == Some("stop-string") {
        text.truncate(sent.len());
    } else {
        text += &detokenizer.finish();
        let rest = &text[sent.len()..];
        if !rest.is_empty() {
            pie::send(rest)?;
        }
    }
    Ok(Json::object([
        ("text", text.into()),
        ("tokens", tokens.split_off(prompt as usize).into()),
        ("finishReason", reason.unwrap_or(full).into()),
        ("promptTokens", prompt.into()),
    ]))
}

fn sampler(input: &Json) -> Sampler {
    let number = |name: &str, otherwise: f64| input.get(name).as_f64().unwrap_or(otherwise) as f32;
    Sampler {
        temperature: number("temperature", 1.0),
        top_k: input.get("topK").as_u32().unwrap_or(0),
        top_p: number("topP", 1.0),
        min_p: number("minP", 0.0),
        seed: input.get("seed").as_u32().unwrap_or_else(runtime::random),
    }
}

fn stops(stop: &Json) -> Vec<String> {
    let all = stop.as_list().unwrap_or(std::slice::from_ref(stop));
    all.iter().filter_map(Json::as_str).filter(|text| !text.is_empty()).map(str::to_string).collect()
}

pie::inferlet!(run);
