/** Makes valid and invalid calls of every function of the contract. The test checks that no function is left out. */
import { defineInferlet } from '@pie/inferlet';
import { adapterCases } from './adapter.ts';
import { type CaseReport, type Cases, report } from './case.ts';
import { forwardCases, fusedCases, introspectCases, outputCases, penaltiesCases, queueCases } from './compute.ts';
import { encoderCases } from './encoders.ts';
import { grammarCases } from './grammar.ts';
import { closedSession, environmentCases, personCases, runtimeCases, sessionCases, tokenizeCases } from './host.ts';
import { imageCases } from './image.ts';
import { allocateCases, fileCases } from './memory.ts';
import {
  childCases,
  closedExchange,
  deniedCases,
  exchangeCases,
  httpCases,
  messagingCases,
  storeCases,
} from './platform.ts';
import { indexCases } from './search.ts';

export const run = defineInferlet(async (input: { part: string; origin?: string }) => {
  const { origin = '' } = input;
  const parts: Readonly<Record<string, readonly Cases[]>> = {
    host: [runtimeCases(JSON.stringify(input)), sessionCases, closedSession, environmentCases],
    person: [personCases],
    tokenize: [tokenizeCases],
    compute: [queueCases, forwardCases, outputCases, fusedCases, penaltiesCases, introspectCases],
    memory: [allocateCases, fileCases],
    grammar: [grammarCases],
    adapter: [adapterCases],
    image: [imageCases],
    encoders: [encoderCases],
    search: [indexCases],
    platform: [storeCases, messagingCases, httpCases(origin), childCases],
    files: [exchangeCases, closedExchange],
    denied: [deniedCases(origin)],
  };
  const partCases = parts[input.part];
  if (partCases === undefined) throw new Error(`no part ${input.part}`);
  const reports: Record<string, CaseReport[]> = {};
  for (const cases of partCases) {
    for (const [name, each] of Object.entries(cases)) {
      const ofFunction = reports[name] ?? [];
      reports[name] = ofFunction;
      ofFunction.push(await report(each));
    }
  }
  return reports;
});
