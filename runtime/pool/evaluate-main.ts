/**
 * Evaluates a script on an engine: `node evaluate-main.ts ENGINE_DIRECTORY PLAN.json SCRIPT OUT_DIRECTORY`. Writes the heap and the table of
 * places, and prints an `EvaluateReply` as one line of JSON. Without arguments, the program only loads its code, which fills its code cache.
 * It runs a stranger's module, so `evaluateInChild` starts this program confined, once per script.
 */
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { ScriptFileError } from '#scheduler/functions/script-file.ts';
import { unpackScript } from '../build/script/payload.ts';
import { encodePlaces, Places, PlacesError } from '../build/script/places.ts';
import { decodeHeap, encodeHeap } from '../lowering/heap.ts';
import { asPlan } from '../lowering/plan.ts';
import { evaluateScript, HEAP_FILE, PLACES_FILE, ScriptError } from './evaluate.ts';
import { compileFiles, measureProgram } from './measure.ts';
import type { EvaluateReply } from './scripts.ts';

const [directory, planFile, scriptFile, out] = process.argv.slice(2);

async function evaluate(directory: string, planFile: string, scriptFile: string, out: string): Promise<EvaluateReply> {
  try {
    const { header, text, map } = unpackScript(await readFile(scriptFile));
    if (header.engine === null) return { error: 'the script names no engine' };
    const places = encodePlaces(map, text);
    const plan = asPlan(JSON.parse(await readFile(planFile, 'utf8')));
    if (plan === null) return { error: 'the plan of the engine is damaged' };
    const loadingFrom = performance.now();
    const program = await compileFiles(directory, plan);
    const loadMs = performance.now() - loadingFrom;
    const from = performance.now();
    const heap = await evaluateScript(program, header.engine, text).catch((error: unknown) => {
      throw error instanceof ScriptError ? placed(error, places) : error;
    });
    const evaluateMs = performance.now() - from;
    const bytes = encodeHeap(heap);
    await Promise.all([writeFile(join(out, HEAP_FILE), bytes), writeFile(join(out, PLACES_FILE), places)]);
    const starts = measureProgram({ ...program, heap: decodeHeap(bytes, header.engine) }, loadMs);
    return { starts, evaluateMs: Math.round(evaluateMs * 10) / 10 };
  } catch (error) {
    if (error instanceof ScriptError) {
      const { message, hint, place } = error;
      return {
        refused: { message, hint, ...(place?.file === undefined ? {} : { place: { ...place, file: place.file } }) },
      };
    }
    if (error instanceof ScriptFileError || error instanceof PlacesError)
      return { refused: { message: error.message, hint: 'Build it with `pie build`, or deploy its source.' } };
    return { error: error instanceof Error ? error.message : String(error) };
  }
}

/** The error with its place in the author's files. */
function placed({ message, hint, place }: ScriptError, places: Buffer): ScriptError {
  const found = place && new Places(places).find(place.line, place.column);
  if (!found) return new ScriptError(message, hint);
  return new ScriptError(`${message} (${found.file}:${found.line}:${found.column})`, hint, found);
}

if (directory && planFile && scriptFile && out) {
  const reply = await evaluate(directory, planFile, scriptFile, out);
  process.stdout.write(`${JSON.stringify(reply)}\n`, () => process.exit(0));
}
