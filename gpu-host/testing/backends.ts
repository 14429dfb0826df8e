/** True in the step of `npm run test:ci` that repeats the tests below on the emulated CUDA backend. `npm test` does not compile that backend. */
const ON_CUDA = process.env.PIE_TEST_CUDA !== undefined;

/** The backends on which tests run that are the same for each of them. */
export const BACKENDS: readonly ('reference' | 'onnx' | 'cuda' | 'ggml')[] = ON_CUDA
  ? ['cuda']
  : ['reference', 'onnx', 'ggml'];
