// All modules import ONNX Runtime from here, because its environment variables must be set before it is loaded.
import './no-telemetry.ts';

export { InferenceSession, Tensor } from 'onnxruntime-node';
