"""Sentiment classification as in SST-2. To try it without any data, in this folder:

    python finetune_sst2.py --epochs 1 --max_samples 500

With the real data:

    python finetune_sst2.py --train SST-2/train.tsv --dev SST-2/dev.tsv --seeds 3 --out sentiment

It is `mini-bert finetune sst2`. Without files the sentences are synthetic (data/synthetic/dataset.py), and the output
says so.
"""

if __name__ == "__main__":
    from mini_bert.cli.main import script

    script("finetune sst2")
