import type { HostTable } from '../lowering/compile.ts';
import { allocate } from './allocate.ts';
import { children } from './children.ts';
import { embedding, rerank } from './encoders.ts';
import { environment } from './environment/environment.ts';
import { fileExchange } from './file-exchange.ts';
import { forward, inputText, introspect, outputText } from './forward.ts';
import { adapter, fused, penalties } from './fused.ts';
import { grammar } from './grammar.ts';
import { http } from './http/calls.ts';
import { index } from './index.ts';
import { inputImage } from './input-image.ts';
import { kvFiles } from './kv-files.ts';
import { messaging } from './messaging.ts';
import { passed, queue } from './queue.ts';
import { runtime } from './runtime.ts';
import { person, session } from './session.ts';
import { store } from './store.ts';
import { tokenize } from './tokenize.ts';

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
