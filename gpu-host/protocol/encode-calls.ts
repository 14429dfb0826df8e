import {
  FILE_RIGHTS,
  type FileSave,
  type Mask,
  type RunRequest,
  type Sampler,
  type StepRequest,
  type TenantLimit,
} from './calls.ts';
import { HANDLER_ERROR_TAGS, type HandlerError } from './errors.ts';
import type { OpenInferletOperation } from './operations.ts';
import { FRAME, NO_PAGE_LIMIT, OP, type Op, STEP_OUTPUT } from './wire.ts';
import type { FrameWriter } from './words.ts';

/** Writes the client's calls; each function returns false when the call does not fit a frame (nothing is written then). */
function begin(writer: FrameWriter, op: Op, inferlet: number, queue: number, id: number): void {
  writer.begin(FRAME.calls);
  writer.put(op);
  writer.put(inferlet);
  writer.put(queue);
  writer.put(id);
}

export function encodeOpenInferlet(
  writer: FrameWriter,
  inferlet: number,
  fields: Omit<OpenInferletOperation, 'op'>,
): boolean {
  begin(writer, OP.openInferlet, inferlet, 0, 0);
  writer.put(fields.maxPages);
  writer.put(fields.maxPriority);
  writer.putWide(fields.arrival);
  writer.putText(fields.name);
  writer.putWide(fields.epoch);
  writer.putText(fields.tenant);
  writer.putText(fields.family);
  writer.putWide(fields.familyEpoch);
  writer.put(fields.familyPages);
  putTenantLimit(writer, fields.tenantPages);
  writer.putText(fields.functionName);
  writer.putText(fields.traceparent);
  return writer.end();
}

export function encodeSetTenantLimit(writer: FrameWriter, inferlet: number, limit: TenantLimit): boolean {
  begin(writer, OP.setTenantLimit, inferlet, 0, 0);
  putTenantLimit(writer, limit);
  return writer.end();
}

/** Writes a limit past a word as no limit: no host has so many pages. */
function putTenantLimit(writer: FrameWriter, { pages, readAt }: TenantLimit): void {
  writer.put(Math.min(pages ?? NO_PAGE_LIMIT, NO_PAGE_LIMIT));
  writer.putWide(readAt);
}

/** A call without further fields: close-inferlet, close-queue, synchronize, run-stop, list-exports, list-adapters. */
export function encodeBare(writer: FrameWriter, op: Op, inferlet: number, queue: number, id: number): boolean {
  begin(writer, op, inferlet, queue, id);
  return writer.end();
}

/** A call with one or two words: create-queue (model index), set-priority, mask-page, next-distribution, entropy, read-embed, run-consumed, allocate, set-waiting, set-span. */
export function encodeWords(
  writer: FrameWriter,
  op: Op,
  inferlet: number,
  queue: number,
  id: number,
  a: number,
  b?: number,
): boolean {
  begin(writer, op, inferlet, queue, id);
  writer.put(a);
  if (b !== undefined) writer.put(b);
  return writer.end();
}

/** A call with texts: unexport, file-unlock, load-adapter (name); file-remove, file-list (name or prefix, function). */
export function encodeTexts(
  writer: FrameWriter,
  op: Op,
  inferlet: number,
  queue: number,
  id: number,
  ...texts: readonly string[]
): boolean {
  begin(writer, op, inferlet, queue, id);
  for (const text of texts) writer.putText(text);
  return writer.end();
}

/** A call with lists: free-pages, free-embeds, copy-embeds, embed-text, copy-tokens. */
export function encodeLists(
  writer: FrameWriter,
  op: Op,
  inferlet: number,
  queue: number,
  lists: readonly (Uint32Array | readonly number[])[],
): boolean {
  begin(writer, op, inferlet, queue, 0);
  for (const list of lists) writer.putList(list);
  return writer.end();
}

export function encodeSharePages(
  writer: FrameWriter,
  inferlet: number,
  queue: number,
  pages: Uint32Array | readonly number[],
  firstAddress: number,
): boolean {
  begin(writer, OP.sharePages, inferlet, queue, 0);
  writer.put(firstAddress);
  writer.putList(pages);
  return writer.end();
}

export function encodeCopySlots(
  writer: FrameWriter,
  inferlet: number,
  queue: number,
  fields: readonly number[],
): boolean {
  begin(writer, OP.copySlots, inferlet, queue, 0);
  writer.putAll(fields);
  return writer.end();
}

/** A forward; with `scoresId` a forward-scores, whose result has that id. */
export function encodeForward(
  writer: FrameWriter,
  inferlet: number,
  queue: number,
  inPages: Uint32Array | readonly number[],
  inEmbeds: Uint32Array | readonly number[],
  outPages: Uint32Array | readonly number[],
  outEmbeds: Uint32Array | readonly number[],
  mask: Mask | undefined,
  scoresId = 0,
): boolean {
  begin(writer, scoresId === 0 ? OP.forward : OP.forwardScores, inferlet, queue, scoresId);
  putForward(writer, inPages, inEmbeds, outPages, outEmbeds, mask);
  return writer.end();
}

/** Fields of every kind of forward. */
function putForward(
  writer: FrameWriter,
  inPages: Uint32Array | readonly number[],
  inEmbeds: Uint32Array | readonly number[],
  outPages: Uint32Array | readonly number[],
  outEmbeds: Uint32Array | readonly number[],
  mask: Mask | undefined,
): void {
  writer.putList(inPages);
  writer.putList(inEmbeds);
  writer.putList(outPages);
  writer.putList(outEmbeds);
  putMask(writer, mask);
}

export function encodeForwardWithAdapter(
  writer: FrameWriter,
  inferlet: number,
  queue: number,
  adapter: string,
  inPages: Uint32Array | readonly number[],
  inEmbeds: Uint32Array | readonly number[],
  outPages: Uint32Array | readonly number[],
  outEmbeds: Uint32Array | readonly number[],
  mask: Mask | undefined,
): boolean {
  begin(writer, OP.forwardWithAdapter, inferlet, queue, 0);
  writer.putText(adapter);
  putForward(writer, inPages, inEmbeds, outPages, outEmbeds, mask);
  return writer.end();
}

/** A step; with an adapter a step-with-adapter, which names it first. */
export function encodeStep(
  writer: FrameWriter,
  inferlet: number,
  queue: number,
  id: number,
  request: StepRequest,
): boolean {
  const { adapter } = request;
  begin(writer, adapter === undefined ? OP.step : OP.stepWithAdapter, inferlet, queue, id);
  if (adapter !== undefined) writer.putText(adapter);
  writer.putList(request.tokens);
  writer.putList(request.positions);
  writer.putList(request.inPages);
  writer.putList(request.outPages);
  putMask(writer, request.mask);
  writer.put(request.rows);
  const output = request.output;
  writer.put(STEP_OUTPUT[output.tag]);
  if (output.tag === 'sample') putSampler(writer, output.val);
  else if (output.tag === 'distributions') writer.put(output.val);
  if (request.allowed) writer.putList(request.allowed);
  else writer.put(0);
  return writer.end();
}

export function encodeRun(
  writer: FrameWriter,
  inferlet: number,
  queue: number,
  id: number,
  request: RunRequest,
): boolean {
  begin(writer, OP.run, inferlet, queue, id);
  writer.put(request.token);
  writer.put(request.position);
  writer.putList(request.pages);
  writer.put(request.maxTokens);
  putSampler(writer, request.sampler);
  writer.putList(request.stopTokens);
  return writer.end();
}

export function encodeExportPages(
  writer: FrameWriter,
  inferlet: number,
  queue: number,
  id: number,
  pages: Uint32Array | readonly number[],
  name: string,
  persistent: boolean,
): boolean {
  begin(writer, OP.exportPages, inferlet, queue, id);
  writer.put(persistent ? 1 : 0);
  writer.putText(name);
  writer.putList(pages);
  return writer.end();
}

export function encodeImportPages(
  writer: FrameWriter,
  inferlet: number,
  queue: number,
  id: number,
  firstAddress: number,
  name: string,
): boolean {
  begin(writer, OP.importPages, inferlet, queue, id);
  writer.put(firstAddress);
  writer.putText(name);
  return writer.end();
}

export function encodeLogProbabilities(
  writer: FrameWriter,
  inferlet: number,
  queue: number,
  id: number,
  embed: number,
  tokens: Uint32Array | readonly number[],
): boolean {
  begin(writer, OP.logProbabilities, inferlet, queue, id);
  writer.put(embed);
  writer.putList(tokens);
  return writer.end();
}

export function encodeFileOpen(
  writer: FrameWriter,
  inferlet: number,
  queue: number,
  id: number,
  firstAddress: number,
  name: string,
  write: boolean,
  functionName: string,
): boolean {
  begin(writer, OP.fileOpen, inferlet, queue, id);
  writer.put(firstAddress);
  writer.putText(name);
  writer.put(write ? 1 : 0);
  writer.putText(functionName);
  return writer.end();
}

export function encodeFileSave(
  writer: FrameWriter,
  inferlet: number,
  queue: number,
  id: number,
  name: string,
  pages: Uint32Array | readonly number[],
  { persistent, rights, functionName }: FileSave,
): boolean {
  begin(writer, OP.fileSave, inferlet, queue, id);
  writer.putText(name);
  writer.put(persistent ? 1 : 0);
  writer.put(FILE_RIGHTS.indexOf(rights));
  writer.putText(functionName);
  writer.putList(pages);
  return writer.end();
}

export function encodeEmbedImage(
  writer: FrameWriter,
  inferlet: number,
  queue: number,
  id: number,
  positions: Uint32Array | readonly number[],
  embeds: Uint32Array | readonly number[],
): boolean {
  begin(writer, OP.embedImage, inferlet, queue, id);
  writer.putList(positions);
  writer.putList(embeds);
  return writer.end();
}

/** The pixels of the embed-image with that id. */
export function encodeImagePixels(writer: FrameWriter, inferlet: number, id: number, pixels: Uint8Array): boolean {
  begin(writer, OP.imagePixels, inferlet, 0, id);
  writer.putBytes(pixels);
  return writer.end();
}

/** The reason why the embed-image with that id gets no pixels. */
export function encodeImageFailed(writer: FrameWriter, inferlet: number, id: number, why: HandlerError): boolean {
  begin(writer, OP.imageFailed, inferlet, 0, id);
  writer.put(HANDLER_ERROR_TAGS.indexOf(why.tag));
  writer.putText(why.val);
  return writer.end();
}

function putSampler(writer: FrameWriter, sampler: Sampler): void {
  writer.putFloat(sampler.temperature);
  writer.put(sampler.topK);
  writer.putFloat(sampler.topP);
  writer.putFloat(sampler.minP);
  writer.put(sampler.seed);
}

function putMask(writer: FrameWriter, mask: Mask | undefined): void {
  writer.put(mask ? 1 : 0);
  if (!mask) return;
  writer.putList(mask.runs);
  writer.putList(mask.rowLengths);
}
