// The rooms in the order of the navigation. Each is a module in rooms/ with a default function open(view, params).

export const rooms = [
  {
    name: "mask", title: "Mask lab", tab: "Mask",
    lead: "Hide words and see what the model guesses from the rest. This is the task it was trained on.",
  },
  {
    name: "stepper", title: "Stepper", tab: "Stepper",
    lead: "Follow a sentence through every operation of the model. Each number shows the sum that produced it.",
  },
  {
    name: "attention", title: "Attention room", tab: "Attention",
    lead: "See which tokens each head attends to, how a weight is computed, and what changes without a head.",
  },
  {
    name: "backward", title: "Backward mode", tab: "Backward",
    lead: "Go from the loss back to the embeddings: the gradient at every operation, and for any weight a check against a finite difference.",
  },
  {
    name: "training", title: "Live training", tab: "Training",
    lead: "Train a Mini-BERT from scratch and watch: the loss, every gradient, what it guesses and what its heads attend to.",
  },
  {
    name: "break", title: "Break it", tab: "Break it",
    lead: "Make a mistake on purpose. Predict what happens, train the broken model next to a healthy one, and read why.",
  },
  {
    name: "text", title: "Text", tab: "Text",
    lead: "See how a text becomes pieces, why these pieces, and how a vocabulary is learnt.",
  },
  {
    name: "vectors", title: "Vectors and probes", tab: "Vectors",
    lead: "See which words and sentences are near each other, and what can be read from each layer.",
  },
  {
    name: "family", title: "Family", tab: "Family",
    lead: "Two models, the same sentence: their pieces, their guesses, and what their heads attend to.",
  },
];
