/** Cases of `runtime`, `environment`, `session`, `person` and `tokenize`. */
import { model } from '@pie/inferlet';
import { Detokenizer, environment, person, runtime, session, settle, tokenize } from '@pie/inferlet/raw';
import { type Cases, NO_MODEL } from './case.ts';

const TEXT = 'Once upon a time, there was a naïve 🦊.';
const name = () => model().name;

export const runtimeCases = (input: string): Cases => ({
  'runtime.version': { ok: () => /^\d+\.\d+\.\d+$/.test(runtime.version()) },
  'runtime.instance-id': { ok: () => runtime.instanceId().length > 8 },
  'runtime.tenant': { ok: () => runtime.tenant() === 'default' },
  'runtime.get-arguments': {
    ok: () => JSON.stringify(JSON.parse(runtime.getArguments())) === JSON.stringify(JSON.parse(input)),
  },
  'runtime.function-name': { ok: () => runtime.functionName() === 'contract' },
  'runtime.function-version': { ok: () => runtime.functionVersion().length > 8 },
  'runtime.models': {
    ok: () => {
      const models = runtime.models();
      const names = models.map(({ name }) => name).join();
      const isSized = models.every(({ pageSize, contextLength }) => pageSize >= 8 && contextLength > 0);
      return names === 'stories15m,minimind2-small,tiny,tiny-vision' && isSized;
    },
  },
  'runtime.model-traits': {
    ok: () => ['forward', 'fused', 'tokenize'].every((trait) => runtime.modelTraits(name()).includes(trait)),
    fails: { 'not-found': () => runtime.modelTraits(NO_MODEL) },
  },
  'runtime.metadata': {
    ok: () => {
      const { architecture, parameters, layers, hiddenSize, attentionHeads, keyValueHeads, headSize, bits } =
        runtime.metadata('stories15m');
      const shape = [layers, hiddenSize, attentionHeads, keyValueHeads, headSize, bits].join();
      return architecture === 'LlamaForCausalLM' && shape === '6,288,6,6,48,32' && parameters === 15_191_712;
    },
    fails: { 'not-found': () => runtime.metadata(NO_MODEL) },
  },
  'runtime.efficient-tokens': {
    ok: () => (runtime.efficientTokens(name()) ?? 1) >= 1,
    fails: { 'not-found': () => runtime.efficientTokens(NO_MODEL) },
  },
  'runtime.debug-query': {
    ok: () =>
      ['limits', 'usage', 'pages', 'grants', 'models', 'all'].every((query) => JSON.parse(runtime.debugQuery(query))),
    fails: { 'invalid-argument': () => runtime.debugQuery('the weather') },
  },
  'runtime.log': { ok: () => runtime.log('info', 'a line of the contract test') },
  'runtime.record-span': {
    ok: () => runtime.recordSpan('a span of the contract test', 'test', runtime.now(), runtime.now(), false),
  },
  'runtime.is-cancelled': { ok: () => runtime.isCancelled() === false },
  'runtime.time-left': { ok: () => runtime.timeLeft() > 0 && runtime.timeLeft() <= 3_600_000 },
  'runtime.now': { ok: () => runtime.now() > Date.UTC(2025, 0) },
  'runtime.random': { ok: () => new Set(Array.from({ length: 8 }, () => runtime.random())).size > 1 },
  'runtime.sleep': { ok: () => settle(runtime.sleep(1)) },
});

/** Cases for a manifest that sets the variable `CONTRACT` alone. */
export const environmentCases: Cases = {
  'environment.get-variable': {
    ok: () =>
      environment.getVariable('CONTRACT') === 'as it is: é' && (environment.getVariable('OTHER') ?? 'none') === 'none',
  },
  'environment.list-variables': { ok: () => environment.listVariables().join() === 'CONTRACT' },
};

const question = (text: string) => ({ text, schema: '{"type":"integer"}', timeoutSeconds: 60, state: 'left' });

/** The first attempt asks and ends without a report. The test answers 7, and the second attempt reports. */
export const personCases: Cases = {
  'person.ask': {
    ok: () => {
      if (person.resumed()) return;
      person.ask(question('How many?'));
      session.send({ tag: 'text', val: 'asked' });
    },
    fails: { 'invalid-argument': () => person.ask(question('')) },
  },
  'person.resumed': {
    ok: () => {
      const resumption = person.resumed();
      return (
        !resumption ||
        (resumption.state === 'left' && resumption.answer.tag === 'answered' && resumption.answer.val === '7')
      );
    },
  },
};

export const sessionCases: Cases = {
  'session.send': {
    ok: async () => {
      session.send({ tag: 'text', val: 'ready' });
      session.send({ tag: 'bytes', val: new Uint8Array([1, 2, 255]) });
      await settle(session.flush());
    },
    fails: { 'limit-exceeded': () => session.send({ tag: 'bytes', val: new Uint8Array((1 << 20) + 1) }) },
  },
  'session.flush': { ok: () => settle(session.flush()) },
  'session.receive': {
    // After the text "ready", the test sends two messages and then closes its side.
    ok: async () => {
      const first = await settle(session.receive());
      const second = await settle(session.receive());
      return first.tag === 'text' && first.val === 'hello' && second.tag === 'bytes' && second.val.join() === '7,8';
    },
  },
};

/** Run after `sessionCases`, when the session is closed. */
export const closedSession: Cases = {
  'session.receive': { ok: () => true, fails: { closed: () => settle(session.receive()) } },
};

export const tokenizeCases: Cases = {
  'tokenize.tokenize': {
    ok: () => {
      const { eos } = tokenize.specialTokens(name());
      return (
        tokenize.tokenize(name(), 'Once upon a time', false).length === 4 &&
        !tokenize.tokenize(name(), '</s>', false).includes(eos[0] ?? -1) &&
        tokenize.tokenize(name(), '</s>', true).includes(eos[0] ?? -1)
      );
    },
    fails: { 'not-found': () => tokenize.tokenize(NO_MODEL, 'a', false) },
  },
  'tokenize.thoughts': {
    ok: () => (tokenize.thoughts(name()) ?? 'none') === 'none',
    fails: { 'not-found': () => tokenize.thoughts(NO_MODEL) },
  },
  'tokenize.detokenize': {
    ok: () => tokenize.detokenize(name(), tokenize.tokenize(name(), TEXT, false), false).trim() === TEXT,
    fails: {
      'not-found': () => tokenize.detokenize(NO_MODEL, [1], false),
      'invalid-argument': () => tokenize.detokenize(name(), [1_000_000], false),
    },
  },
  'tokenize.special-tokens': {
    ok: () => tokenize.specialTokens(name()).bos === 1,
    fails: { 'not-found': () => tokenize.specialTokens(NO_MODEL) },
  },
  'tokenize.vocabulary': {
    ok: () => {
      const vocabulary = tokenize.vocabulary(name());
      const [token = 0] = tokenize.tokenize(name(), 'Once', false);
      return vocabulary.length === model().vocabularySize && text(vocabulary[token]).trim() === 'Once';
    },
    fails: { 'not-found': () => tokenize.vocabulary(NO_MODEL) },
  },
  'tokenize.chat-template': {
    ok: () => tokenize.chatTemplate(CHAT, [{ role: 'user', content: 'Hi' }], true).includes('Hi'),
    fails: {
      unsupported: () => tokenize.chatTemplate(name(), [{ role: 'user', content: 'Hi' }], true),
      'not-found': () => tokenize.chatTemplate(NO_MODEL, [], true),
    },
  },
  'tokenize.render-chat': {
    ok: () => {
      const plain = tokenize.chatTemplate(CHAT, [{ role: 'user', content: 'Hi' }], true);
      const variables = { messages: [{ role: 'user', content: 'Hi' }], add_generation_prompt: true };
      return tokenize.renderChat(CHAT, JSON.stringify(variables)) === plain;
    },
    fails: {
      'invalid-argument': () => tokenize.renderChat(CHAT, '[]'),
      unsupported: () => tokenize.renderChat(name(), '{"messages":[]}'),
      'not-found': () => tokenize.renderChat(NO_MODEL, '{"messages":[]}'),
    },
  },
  'tokenize.[constructor]detokenizer': {
    ok: () => new Detokenizer(name()).drop(),
    fails: { 'not-found': () => new Detokenizer(NO_MODEL).push([1]) },
  },
  'tokenize.[method]detokenizer.push': {
    ok: () => {
      const stream = new Detokenizer(name());
      const pieces = tokenize.tokenize(name(), TEXT, false).map((token) => stream.push([token]));
      return pieces.every((piece) => !piece.includes('\ufffd')) && (pieces.join('') + stream.finish()).trim() === TEXT;
    },
    fails: { 'invalid-argument': () => new Detokenizer(name()).push([1_000_000]) },
  },
  'tokenize.[method]detokenizer.finish': {
    ok: () => {
      const stream = new Detokenizer(name());
      // The tokens of the emoji without the last one are an incomplete character.
      const half = tokenize.tokenize(name(), '🦊', false).slice(0, -1);
      stream.push(half);
      return stream.finish().includes('\ufffd');
    },
  },
};

/** A model with a chat template. */
const CHAT = 'minimind2-small';
const text = (bytes: Uint8Array | undefined): string => new TextDecoder().decode(bytes);
