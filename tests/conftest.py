"""Small matrix products gain nothing from several BLAS threads, and lose much on a busy machine: one is enough."""

from threadpoolctl import threadpool_limits

threadpool_limits(1)
