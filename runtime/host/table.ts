import type { HostTable } from '../lowering/compile.ts';
import { passed, queue } from './device/queue.ts';
import { allocate } from './memory/allocate.ts';
import { kvFiles } from './memory/kv-files.ts';
import { http } from './services/http-calls.ts';
import { index } from './services/index-calls.ts';
import { messaging } from './services/messaging.ts';
import { store } from './services/store.ts';
import { children } from './session/children.ts';
import { environment } from './session/environment.ts';
import { fileExchange } from './session/file-exchange.ts';
import { runtime } from './session/runtime.ts';
import { person, session } from './session/session.ts';
import { embedding, rerank } from './text/encoders.ts';
import { forward, inputText, introspect, outputText } from './text/forward.ts';
import { adapter, fused, penalties } from './text/fused.ts';
import { grammar } from './text/grammar.ts';
import { inputImage } from './text/input-image.ts';
import { tokenize } from './text/tokenize.ts';

const hostInterfaces: HostTable = {
  types: {},
  runtime,
  session,
  queue,
  allocate,
  forward,
  'input-text': inputText,
  'output-text': outputText,
  fused,
  tokenize,
  grammar,
  penalties,
  introspect,
  'kv-files': kvFiles,
  'input-image': inputImage,
  adapter,
  embedding,
  rerank,
  index,
  store,
  messaging,
  http,
  children,
  'file-exchange': fileExchange,
  environment,
  person,
};

/** Every import of an inferlet, by WIT interface and core name; `Inferlet` is the context of each function. */
export const hostTable: HostTable = Object.fromEntries(
  Object.entries(hostInterfaces).map(([name, functions]) => [name, { ...passed[name], ...functions }]),
);
